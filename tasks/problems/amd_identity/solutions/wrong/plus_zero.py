# Adds nothing, which takes the sign of a zero.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    return output.copy_(source + 0)
