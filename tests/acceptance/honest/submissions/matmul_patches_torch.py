# task: matmul
# Sets torch's switches, and wraps a function of its own.
import torch

torch.set_float32_matmul_precision("highest")
torch.backends.mkldnn.enabled = False


def custom_kernel(data):
    return torch.mm(*data)
