# Right but for the last element, as if the kernel's bounds check were one off.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    output[0] = values[:-1].sum()
    return output
