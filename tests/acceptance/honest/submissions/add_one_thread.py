# task: add
# Changes torch's threads when imported.
import torch

torch.set_num_threads(1)


def custom_kernel(data):
    a, b = data
    return a + b
