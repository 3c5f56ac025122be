# Sorts, and finds where each number ends.
import functools

import torch
from task import input_t, output_t


@functools.cache
def numbers(device: torch.device) -> torch.Tensor:
    return torch.arange(256, dtype=torch.int16, device=device)


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    ends = torch.searchsorted(values.sort().values.short(), numbers(values.device), right=True)
    output.copy_(ends)
    output[1:] -= ends[:-1]
    return output
