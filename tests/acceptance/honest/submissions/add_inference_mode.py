# task: add
# An inference tensor.
import torch


@torch.inference_mode()
def custom_kernel(data):
    a, b = data
    return a + b
