# task: add
# The output is the end of a larger tensor.
import torch


def custom_kernel(data):
    a, b = data
    padded = torch.empty(a.numel() + 7)
    torch.add(a, b, out=padded[7:])
    return padded[7:]
