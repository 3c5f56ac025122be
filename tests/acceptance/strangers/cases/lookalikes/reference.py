import torch

LABELS = ("007", "True", "nearest exact", "[1, 2]")


def generate_input(size, seed, label):
    if label not in LABELS:
        raise ValueError(f"label is {label!r}")
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return data * 2


def check_implementation(data, output):
    return bool(torch.equal(output, ref_kernel(data))), ""
