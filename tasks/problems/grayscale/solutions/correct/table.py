import functools

import torch
from task import input_t, output_t


@functools.cache
def weights(device: torch.device) -> torch.Tensor:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    return torch.tensor([0.2989, 0.5870, 0.1140], device=device)


def custom_kernel(data: input_t) -> output_t:
    image, output = data
    return torch.sum(image * weights(image.device), dim=-1, out=output)
