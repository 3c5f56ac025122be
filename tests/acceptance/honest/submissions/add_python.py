# task: add
# No tensor operation at all.
import torch


def custom_kernel(data):
    a, b = data
    return torch.tensor([x + y for x, y in zip(a.tolist(), b.tolist())])
