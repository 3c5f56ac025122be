import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    full = torch.empty(input.shape[0] * dist.get_world_size(), input.shape[1], dtype=input.dtype, device=input.device)
    dist.all_gather_into_tensor(full, input)
    return torch.nn.functional.linear(full, weight, bias)
