import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return torch.cumsum(values, dim=0, out=output)
