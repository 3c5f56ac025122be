import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    values, _ = data
    return torch.bincount(values, minlength=256)


def generate_input(size: int, contention: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randint(0, 256, (size,), device=device, dtype=torch.uint8, generator=generator)
    frequent = torch.randint(0, 256, (1,), device=device, dtype=torch.uint8, generator=generator)
    values = torch.where(torch.rand(size, device=device, generator=generator) < contention / 100, frequent, values)
    if edge:
        # There are only the smallest and the largest.
        values = torch.where(values < 128, 0, 255).byte()
    # -1: a count that was not written cannot pass.
    return values, torch.full((256,), -1, device=device)


# Counts are whole numbers, and must be equal.
check_implementation = make_match_reference(ref_kernel)
