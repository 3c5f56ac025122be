# Writes zeros instead of the input.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    _, output = data
    return output.zero_()
