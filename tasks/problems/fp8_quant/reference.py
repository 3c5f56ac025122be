import torch
from task import input_t, output_t
from utils import make_match_reference

# The largest number of e4m3.
FP8_MAX = 448.0
SMALLEST = 1e-10


def ref_kernel(data: input_t) -> output_t:
    x, _, x_s = data
    groups = x.unflatten(1, (x_s.shape[1], -1))
    scales = groups.abs().amax(dim=2).clamp(min=SMALLEST) / FP8_MAX
    return (groups / scales[..., None]).clamp(-FP8_MAX, FP8_MAX).flatten(1), scales


def generate_input(num_tokens: int, hidden_dim: int, group_size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (num_tokens, hidden_dim // group_size)
    # The scale of another group is wrong by powers of two. At the edge they go from far below the smallest to 2**100.
    powers = torch.randint(*((-60, 100) if edge else (-12, 13)), (*shape, 1), device=device, generator=generator)
    groups = torch.randn(*shape, group_size, device=device, generator=generator)
    groups = torch.ldexp(groups, powers)
    # The last token's second group, where there is one, is zeros: it has a scale, too.
    groups[-1, 1:2] = 0
    # NaN: an element that was not written cannot pass.
    x = groups.flatten(1)
    return x, torch.full_like(x, float("nan")), torch.full_like(groups[..., 0], float("nan"))


# Two divisions or multiplications by a reciprocal, also approximate ones, err by 5e-7 at most. Half precision (2**-11),
# TF32, and rounding to FP8 (2**-4) err by more than is allowed.
check_implementation = make_match_reference(ref_kernel, rtol=1e-5, atol=0)
