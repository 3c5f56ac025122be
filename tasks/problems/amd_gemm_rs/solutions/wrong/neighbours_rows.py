# Off by one rank: the sums are right, but of the rows that belong to the next rank.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    rows = input.shape[0] // dist.get_world_size()
    part = torch.nn.functional.linear(input.roll(rows, dims=0), weight, bias)
    output = torch.empty(rows, part.shape[1], dtype=part.dtype, device=part.device)
    dist.reduce_scatter_tensor(output, part)
    return output
