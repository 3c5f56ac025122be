# Counts in bytes, which begin again after 255.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return output.copy_(torch.bincount(values, minlength=256) % 256)
