import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    a, b, c = data
    # A device that multiplies float32 in TF32 is as exact: factors are float16 numbers.
    return (a.float() @ b.float()).to(c.dtype)


def generate_input(m: int, n: int, k: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn(m, k, device=device, dtype=torch.float16, generator=generator)
    b = torch.randn(k, n, device=device, dtype=torch.float16, generator=generator)
    # Sums have a standard deviation of 1.
    b *= k**-0.5
    if edge:
        # The last column of a counts as much as all others together.
        a[:, -1] = k**0.5
    # NaN: an element that was not written cannot pass.
    return a, b, torch.full((m, n), float("nan"), device=device, dtype=torch.float16)


# Sums are about 1. In float32, whatever the order, also where tensor cores cut off what they cannot hold, the errors of
# 4,096 products are below 4e-5, and rounding to float16 costs at most a step of it, 2**-10 of the value, between two
# that fall on both sides of a midpoint. Partial sums in float16 err by up to 2**-12 of what they stand for: where sums
# cancel, as they often do with factors of either sign, that is more than is allowed. So are factors in eight bits.
check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-4)
