# task: add
# Memory of numpy's.
import torch


def custom_kernel(data):
    a, b = data
    return torch.from_numpy(a.numpy() + b.numpy())
