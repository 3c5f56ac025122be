# task: rows
# The library's.
import torch


def custom_kernel(data):
    return torch.softmax(data, -1)
