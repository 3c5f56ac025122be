# Adds the products of slices of 16 in float32.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, c = data
    total = torch.zeros(c.shape, device=c.device)
    for left, right in zip(a.split(16, dim=1), b.split(16), strict=True):
        total += left.float() @ right.float()
    return c.copy_(total)
