# Leaves each element out of its own sum.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return output.copy_(values.cumsum(dim=0) - values)
