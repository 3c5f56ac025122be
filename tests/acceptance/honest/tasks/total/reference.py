# One number.
import torch


def generate_input(size: int, seed: int):
    return torch.randint(-100, 100, (size,), generator=torch.Generator().manual_seed(seed))


def check_implementation(data, output):
    good = int(output) == int(data.sum())
    return good, "" if good else f"found {output}, expected {int(data.sum())}"
