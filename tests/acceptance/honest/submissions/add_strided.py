# task: add
# Every second element of a buffer is the output.
import torch


def custom_kernel(data):
    a, b = data
    wide = torch.zeros(a.numel(), 2)
    wide[:, 0] = a + b
    return wide[:, 0]
