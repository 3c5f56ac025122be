# task: add_large
# Sixteen megabytes out.
import torch


def custom_kernel(data):
    return torch.add(*data)
