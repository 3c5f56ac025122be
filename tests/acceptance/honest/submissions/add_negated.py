# task: add
# A lazy negation: bytes that are not the values.
import torch


def custom_kernel(data):
    a, b = data
    return torch._neg_view(-(a + b))
