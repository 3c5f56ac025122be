# task: add
# torch.jit.
import torch


@torch.jit.script
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def custom_kernel(data):
    return add(data[0], data[1])
