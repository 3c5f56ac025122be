import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return a + b


def generate_input(size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn(size, size, device=device, dtype=torch.float16, generator=generator)
    b = torch.randn(size, size, device=device, dtype=torch.float16, generator=generator)
    if edge:
        # From subnormal numbers to sums beyond the largest; every other sum is nothing.
        powers = torch.randint(-24, 15, (size, size), device=device, generator=generator)
        a = torch.ldexp(a.float().clamp(-3, 3), powers).half()
        b = torch.where(b > 0, a, -a)
    return a, b


# A float16 sum has one correct rounding: the tolerance is float16's own, far below its spacing.
check_implementation = make_match_reference(ref_kernel)
