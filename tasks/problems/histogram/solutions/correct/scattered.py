from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return output.zero_().index_add_(0, values.int(), output.new_ones(()).expand(values.shape))
