# Right everywhere but in the last element, as if the kernel's bounds check were one off.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    output = a + b
    output[-1, -1] = a[-1, -1]
    return output
