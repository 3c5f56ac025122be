# Writes the rows in the order in which they arrive: a rank's own first.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    shares = [torch.empty_like(input) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, input)
    rank = dist.get_rank()
    return torch.nn.functional.linear(torch.cat(shares[rank:] + shares[:rank]), weight, bias)
