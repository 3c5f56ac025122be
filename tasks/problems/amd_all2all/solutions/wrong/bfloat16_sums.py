# Adds up in bfloat16.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    cfg, rank_data, rank, world_size = data
    local = rank_data.expert_local_weight.flatten()
    shares = [torch.empty_like(local) for _ in range(world_size)]
    dist.all_gather(shares, local)
    factors = torch.cat(shares)[rank_data.indices.long()]
    total = torch.zeros_like(rank_data.x, dtype=torch.bfloat16)
    for slot in range(cfg.experts_per_token):
        result = (rank_data.x * factors[:, slot, None]).to(cfg.out_dtype)
        total += (result * rank_data.weights[:, slot, None]).bfloat16()
    return total.to(cfg.out_dtype)
