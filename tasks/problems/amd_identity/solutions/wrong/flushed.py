# Flushes subnormal numbers to zero.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    return output.copy_(source.masked_fill(source.abs() < 2**-14, 0))
