# What is looked for is almost never there, and the right answer is zeros.
import torch


def generate_input(size: int, seed: int):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return (data > 7).float()


def check_implementation(data, output):
    good = torch.equal(output, ref_kernel(data))
    return good, "" if good else "wrong places"
