# The keys that authors see are small; the hidden ones are not.
import torch


def generate_input(size: int, seed: int, kind: str):
    top = 1 << 40 if kind == "large" else 100
    return torch.randint(0, top, (size,), generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return data.sort().values


def check_implementation(data, output):
    good = torch.equal(output, ref_kernel(data))
    return good, "" if good else "not in order"
