# Passes the rows around a ring, and multiplies what it has while the next rows travel.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    rank, world_size = dist.get_rank(), dist.get_world_size()
    output = torch.empty(
        world_size, input.shape[0], weight.shape[0], dtype=input.dtype, device=input.device
    )
    rows = input.contiguous()
    for step in range(world_size):
        requests = []
        if step + 1 < world_size:
            following = torch.empty_like(rows)
            exchange = [
                dist.P2POp(dist.isend, rows, (rank + 1) % world_size),
                dist.P2POp(dist.irecv, following, (rank - 1) % world_size),
            ]
            requests = dist.batch_isend_irecv(exchange)
        output[(rank - step) % world_size] = torch.nn.functional.linear(rows, weight, bias)
        for request in requests:
            request.wait()
        if requests:
            rows = following
    return output.flatten(0, 1)
