from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return output.copy_(values.double().cumsum(dim=0))
