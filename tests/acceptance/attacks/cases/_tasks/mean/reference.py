# The cases that authors see are alike all over; the hidden one is not.
import torch

RTOL = 1e-3


def generate_input(size: int, seed: int, kind: str):
    x = 1 + 1e-3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return x * torch.arange(size) if kind == "steps" else x


def ref_kernel(data):
    return data.double().mean().float()


def check_implementation(data, output):
    good = torch.allclose(output, ref_kernel(data), rtol=RTOL)
    return good, "" if good else f"found {float(output)}, expected {float(ref_kernel(data))}"
