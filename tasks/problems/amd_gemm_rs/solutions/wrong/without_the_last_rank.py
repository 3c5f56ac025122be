# Leaves out what the last rank computed, as a flag that is waited for too few times does.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    world_size = dist.get_world_size()
    part = torch.nn.functional.linear(input, weight, bias)
    received = torch.empty_like(part)
    dist.all_to_all_single(received, part)
    return received.float().unflatten(0, (world_size, -1))[:-1].sum(dim=0).to(input.dtype)
