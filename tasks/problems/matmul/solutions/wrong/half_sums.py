# Adds the products of slices of 16 in float16.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, c = data
    c.zero_()
    for left, right in zip(a.split(16, dim=1), b.split(16), strict=True):
        c += (left.float() @ right.float()).half()
    return c
