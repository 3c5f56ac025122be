# task: add
# A subclass of Tensor that holds its values.
import torch


def custom_kernel(data):
    a, b = data
    return torch.nn.Parameter(a + b)
