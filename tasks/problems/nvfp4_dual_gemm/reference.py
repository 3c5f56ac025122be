import math

import torch
from formats import dequantize
from inputs import exponents, matrix, seeded, unwritten
from scales128x4 import cute_order
from task import input_t, output_t
from utils import make_match_reference

# Rows of b1 and b2 dequantized at a time, so that the largest case needs megabytes beside its input, not gigabytes.
ROWS_AT_A_TIME = 1024


def ref_kernel(data: input_t) -> output_t:
    a, b1, b2, sfa, sfb1, sfb2, _, _, _, c = data
    output = torch.empty_like(c)
    for batch in range(c.shape[2]):
        left = dequantize(a[:, :, batch], sfa[:, :, batch])
        for start in range(0, b1.shape[0], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            # A device that multiplies float32 in TF32 is as exact here: each factor has six significant bits.
            gate = left @ dequantize(b1[rows, :, batch], sfb1[rows, :, batch]).T
            up = left @ dequantize(b2[rows, :, batch], sfb2[rows, :, batch]).T
            output[:, rows, batch] = (torch.nn.functional.silu(gate) * up).to(output.dtype)
    return output


def generate_input(m: int, n: int, k: int, l: int, seed: int, *, edge: int = 0) -> input_t:  # noqa: E741
    generator = seeded(seed)
    # The sums have a standard deviation of 12 sqrt(k) times the powers of two that the scales of a block add up to:
    # such that it is 4 to 9 here, silu bends where the sums are, and no product overflows float16.
    first, second = exponents(k, l, generator, total=-round(math.log2(2 * math.sqrt(k))))
    a, sfa = matrix(m, k, first, generator, edge=edge)
    b1, sfb1 = matrix(n, k, second, generator)
    b2, sfb2 = matrix(n, k, second, generator)
    plain = (sfa, sfb1, sfb2)
    return a, b1, b2, *plain, *map(cute_order, plain), unwritten(m, n, l, generator)


# Both float32 sums are exact (inputs.py); silu and the product err by a few units of float32. What is left is one
# rounding to float16: at most one step of it, 2**-10 of the value, between two that fall on both sides of a midpoint.
# Rounding the sums to float16 first costs two more, which many elements show.
check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
