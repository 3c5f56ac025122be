import math

import torch
from task import input_t, output_t
from utils import make_match_reference

# One more than the largest finite number's bits, without its sign.
INFINITY = 0x7F800000


def ref_kernel(data: input_t) -> output_t:
    values, _ = data
    return values.sort().values


def generate_input(size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    if edge:
        # Any finite number is as likely as any other, subnormal ones included; of eight, one is a zero of either sign.
        codes = torch.randint(-INFINITY, INFINITY, (size,), device=device, generator=generator)
        bits = torch.where(codes < 0, codes + INFINITY - (1 << 31), codes)
        values = bits.to(torch.int32).view(torch.float32)
        values[::8] *= 0
    else:
        rows = math.isqrt(size)
        # Means are from -rows / 2 to rows / 2.
        means = torch.arange(size, device=device) // -(-size // rows) - rows // 2
        values = torch.randn(size, device=device, generator=generator) + means
        # Every other number is a multiple of 1/8, as many others are.
        values[::2] = (values[::2] * 8).round() / 8
    # NaN: an element that was not written cannot pass.
    return values, torch.full_like(values, float("nan"))


# Sorting rounds nothing; -0 and 0 are equal.
check_implementation = make_match_reference(ref_kernel, rtol=0, atol=0)
