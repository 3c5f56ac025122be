import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    part = torch.nn.functional.linear(input, weight, bias)
    output = torch.empty(part.shape[0] // dist.get_world_size(), part.shape[1], dtype=part.dtype, device=part.device)
    dist.reduce_scatter_tensor(output, part)
    return output
