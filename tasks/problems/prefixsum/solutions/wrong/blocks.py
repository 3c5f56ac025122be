# Forgets what comes before each block of 512.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    for block, sums in zip(values.split(512), output.split(512), strict=True):
        sums.copy_(block.cumsum(dim=0))
    return output
