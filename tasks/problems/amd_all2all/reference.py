import torch
import torch.distributed as dist
from task import MoEConfig, RankTestData, input_t, output_t
from utils import make_match_reference


def count_tokens(cfg: MoEConfig, rank: int) -> int:
    # Below the maximum and another one on every rank, but not another one with every seed: calls of a case must be the
    # same problem, or their times could not be averaged and their inputs not be new each time.
    seed = (cfg.num_experts * 31 + cfg.hidden_dim) * 31 + cfg.max_num_tokens * 1009 + rank
    generator = torch.Generator().manual_seed(seed)
    return int(torch.randint(1, cfg.max_num_tokens, (), generator=generator))


def generate_input(
    *,
    num_experts: int,
    experts_per_token: int,
    hidden_dim: int,
    max_num_tokens: int,
    seed: int,
    rank: int,
    world_size: int,
    edge: int = 0,
) -> input_t:
    device = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed + rank)
    cfg = MoEConfig(
        num_experts=num_experts,
        experts_per_token=experts_per_token,
        hidden_dim=hidden_dim,
        max_num_tokens=max_num_tokens,
    )
    tokens = count_tokens(cfg, rank)
    lots = torch.rand(tokens, num_experts, device=device, generator=generator)
    if edge:
        # One rank has the experts of all tokens, as far as it has as many.
        share = num_experts // world_size
        first = seed % world_size * share
        lots[:, first : first + share] -= 1
    local = torch.randn(num_experts // world_size, device=device, generator=generator)
    data = RankTestData(
        num_tokens=tokens,
        indices=lots.argsort(dim=1)[:, :experts_per_token].int(),
        weights=torch.rand(tokens, experts_per_token, device=device, generator=generator),
        x=torch.randn(tokens, hidden_dim, device=device, generator=generator).to(cfg.in_dtype),
        expert_local_weight=local[:, None, None],
    )
    return cfg, data, rank, world_size


def ref_kernel(data: input_t) -> output_t:
    # What an expert does to a token depends on one number, so the numbers travel here and not the tokens.
    cfg, rank_data, _, world_size = data
    local = rank_data.expert_local_weight.flatten()
    shares = [torch.empty_like(local) for _ in range(world_size)]
    dist.all_gather(shares, local)
    factors = torch.cat(shares)[rank_data.indices.long()]
    total = torch.zeros(rank_data.x.shape, device=rank_data.x.device)
    for slot in range(cfg.experts_per_token):
        # An expert's own output has the type of the outputs.
        expert = (rank_data.x * factors[:, slot, None]).to(cfg.out_dtype)
        total += expert.float() * rank_data.weights[:, slot, None]
    return total.to(cfg.out_dtype)


# Rounding a sum to float16 costs at most 2**-11 of it, so a kernel that adds its few terms in float16 stays below these
# unless its terms are far larger than their sum; an output in bfloat16 (2**-8, after every addition) does not.
check_implementation = make_match_reference(ref_kernel, rtol=1e-2, atol=5e-3)
