# Multiplies the rows of one destination at a time: while they travel, the next ones are multiplied.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    rank, world_size = dist.get_rank(), dist.get_world_size()
    blocks = input.unflatten(0, (world_size, -1))
    parts, received, requests = [], [], []
    # A rank's own rows come last: no other rank waits for them.
    for step in range(1, world_size):
        target, source = (rank + step) % world_size, (rank - step) % world_size
        parts.append(torch.nn.functional.linear(blocks[target], weight, bias))
        received.append(torch.empty_like(parts[-1]))
        exchange = [dist.P2POp(dist.isend, parts[-1], target), dist.P2POp(dist.irecv, received[-1], source)]
        requests += dist.batch_isend_irecv(exchange)
    total = torch.nn.functional.linear(blocks[rank], weight, bias).float()
    for request in requests:
        request.wait()
    for part in received:
        total += part
    return total.to(input.dtype)
