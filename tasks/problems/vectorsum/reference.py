import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    values, _ = data
    return values.sum(dim=0, keepdim=True, dtype=torch.float64).to(values.dtype)


def generate_input(size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randn(size, device=device, generator=generator)
    distance, sign, scale = torch.rand(3, device=device, generator=generator).tolist()
    # Four to six standard deviations of a sum of normal numbers: far enough from zero for float32, and near enough for
    # a single element, or the rounding of all of them, to show even among 52 million.
    total = (4 + 2 * distance) * size**0.5 * (1 if sign < 0.5 else -1)
    values += (total - values.sum(dtype=torch.float64)) / size
    if edge:
        # The last element is as large as all others together.
        values[-1] = total
    # NaN: an output that was not written cannot pass.
    return values * 10 ** (2 * scale - 1), torch.full((1,), float("nan"), device=device)


match = make_match_reference(ref_kernel, rtol=2e-5, atol=0)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    # Submissions to the public board return the buffer's element.
    return match(data, output[None] if isinstance(output, torch.Tensor) and output.dim() == 0 else output)


# An addition in float32 errs by some 2**-25 of its result. Where the sums of blocks of 1,024 elements are added one
# after the other, 51,200 in the largest case, that makes 3e-6 of the sum, in a tree 1e-8. Rounding each element to
# float16 costs about 3e-5, a missing one of average size 2e-5 in the largest case and 5e-3 in the smallest.
