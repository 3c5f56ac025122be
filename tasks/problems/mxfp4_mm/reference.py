import torch
from formats import BLOCK, ScaleRule, dequantize, quantize
from inputs import shuffle_scales, shuffle_values, without_ties
from task import input_t, output_t
from utils import make_match_reference


def rounded(values: torch.Tensor) -> torch.Tensor:
    return dequantize(*quantize(values, ScaleRule.AMD))


def ref_kernel(data: input_t) -> output_t:
    a, b, *_ = data
    # A device that multiplies float32 in TF32 is as exact here: each factor has two significant bits.
    return (rounded(a) @ rounded(b).T).to(a.dtype)


def generate_input(m: int, n: int, k: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    # From block to block the magnitudes of A and B run in opposite directions by powers of two, so that a scale of the
    # next block is wrong by powers of two; and one block in 32 is zeros.
    powers = torch.randint(-8, 9, (k // BLOCK, 1), device=device, generator=generator)

    def blocks(rows: int, exponents: torch.Tensor) -> torch.Tensor:
        values = torch.randn(rows, k // BLOCK, BLOCK, device=device, generator=generator)
        kept = torch.randint(0, 32, (rows, k // BLOCK, 1), device=device, generator=generator) > 0
        matrix = (torch.ldexp(values, exponents) * kept).flatten(1).to(torch.bfloat16)
        return without_ties(matrix, quantize(matrix, ScaleRule.AMD)[1])

    a, b = blocks(m, powers), blocks(n, -powers)
    if edge:
        # Each row of a has one block that counts.
        only = torch.randint(0, k // BLOCK, (m, 1, 1), device=device, generator=generator)
        a = (a.unflatten(1, (-1, BLOCK)) * (torch.arange(k // BLOCK, device=device)[:, None] == only)).flatten(1)
    packed, scales = quantize(b, ScaleRule.AMD)
    values = (packed, shuffle_values(packed))
    return a, b, *(each.view(torch.float4_e2m1fn_x2) for each in values), shuffle_scales(scales)


# Every float32 sum is exact: the scales of the two factors add up to 2**-6 and more, since 32 normal values have one
# above 0.44, so that a product is a multiple of 2**-8 and 36 at most, with a standard deviation of 1; and float32
# counts 2**-8 up to 65,536. What is left is one rounding to bfloat16: at most one step of it, 2**-7 of the value,
# between two that fall on both sides of a midpoint.
check_implementation = make_match_reference(ref_kernel, rtol=1e-2, atol=1e-2)
