import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return torch.sum(values, dim=0, keepdim=True, out=output)
