import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    values, _ = data
    return values.cumsum(dim=0, dtype=torch.float64).to(values.dtype)


def generate_input(size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randn(size, device=device, generator=generator)
    if edge:
        # The first element is in every sum, and larger than all others together.
        values[0] = 8 * size**0.5
    # NaN: an element that was not written cannot pass.
    return values, torch.full_like(values, float("nan"))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    atol = 2e-5 * data[0].numel() ** 0.5
    return make_match_reference(ref_kernel, rtol=2e-5, atol=atol)(data, output)


# An addition in float32 errs by some 2**-25 of its result. Where the sums of blocks of 1,024 elements are added one
# after the other, 262,144 in the largest case, that makes 7e-6 of the last sum, which is about sqrt(size). Rounding
# each element to float16 costs 1e-4 of that. In the largest case the absolute tolerance is 0.3, less than most elements
# that might be missing are.
