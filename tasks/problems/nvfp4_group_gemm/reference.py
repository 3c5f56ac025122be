import torch
from formats import dequantize
from inputs import exponents, matrix, seeded, unwritten
from scales128x4 import cute_order
from task import input_t, output_t
from utils import make_match_reference

# Rows of b dequantized at a time, so that the largest case needs megabytes beside its input, not gigabytes.
ROWS_AT_A_TIME = 1024


def ref_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, _ = data
    outputs = []
    for (a, b, c), (sfa, sfb) in zip(abc_tensors, sfasfb_tensors, strict=True):
        output = torch.empty_like(c)
        left = dequantize(a[:, :, 0], sfa[:, :, 0])
        for start in range(0, b.shape[0], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            right = dequantize(b[rows, :, 0], sfb[rows, :, 0])
            # A device that multiplies float32 in TF32 is as exact here: each factor has six significant bits.
            output[:, rows, 0] = (left @ right.T).to(output.dtype)
        outputs.append(output)
    return outputs


def generate_input(
    m: tuple[int, ...], n: tuple[int, ...], k: tuple[int, ...], g: int, seed: int, *, edge: int = 0
) -> input_t:
    sizes = [(*size, 1) for size in zip(m, n, k, strict=True)]
    if len(sizes) != g:
        raise ValueError(f"found {len(sizes)} problems in m, n and k, expected g = {g}")
    generator = seeded(seed)
    abc_tensors, sfasfb_tensors = [], []
    for rows, columns, depth, batches in sizes:
        first, second = exponents(depth, batches, generator)
        a, sfa = matrix(rows, depth, first, generator, edge=edge)
        b, sfb = matrix(columns, depth, second, generator)
        abc_tensors.append((a, b, unwritten(rows, columns, batches, generator)))
        sfasfb_tensors.append((sfa, sfb))
    return abc_tensors, sfasfb_tensors, [tuple(map(cute_order, pair)) for pair in sfasfb_tensors], sizes


# Every float32 sum is exact (inputs.py), so what is left is one rounding to float16: at most one step of it, 2**-10 of
# the value, between two that rounded sums with errors of their own on both sides of a midpoint.
check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
