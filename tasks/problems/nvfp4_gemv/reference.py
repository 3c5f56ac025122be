import torch
from formats import dequantize
from inputs import exponents, matrix, seeded, unwritten
from scales128x4 import cute_order
from task import input_t, output_t
from utils import make_match_reference

# Rows of b that block-scaled tensor-core instructions want; all but the first are padding.
B_ROWS = 128
# Rows dequantized at a time, so that the largest case needs megabytes beside its input, not gigabytes.
ROWS_AT_A_TIME = 1024


def ref_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    output = torch.empty_like(c)
    for batch in range(c.shape[2]):
        vector = dequantize(b[:1, :, batch], sfb[:1, :, batch])[0]
        for start in range(0, c.shape[0], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            values = dequantize(a[rows, :, batch], sfa[rows, :, batch])
            output[rows, 0, batch] = (values * vector).sum(dim=1, dtype=torch.float32).to(output.dtype)
    return output


def generate_input(m: int, k: int, l: int, seed: int, *, edge: int = 0) -> input_t:  # noqa: E741
    generator = seeded(seed)
    first, second = exponents(k, l, generator)
    a, sfa = matrix(m, k, first, generator, edge=edge)
    b, sfb = matrix(B_ROWS, k, second, generator)
    return a, b, sfa, sfb, cute_order(sfa), cute_order(sfb), unwritten(m, 1, l, generator)


# Every float32 sum is exact (inputs.py), so what is left is one rounding to float16: at most one step of it, 2**-10 of
# the value, between two that rounded sums with errors of their own on both sides of a midpoint.
check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
