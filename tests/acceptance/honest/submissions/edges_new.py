# task: edges
# New memory for nothing, and a number that was expanded and is one again.
import torch


def custom_kernel(data):
    nothing, number = data
    return [torch.empty(nothing.shape[1], 0), (number * 2).expand(4)[2]]
