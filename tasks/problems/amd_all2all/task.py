from dataclasses import dataclass

import torch


@dataclass
class MoEConfig:
    num_experts: int
    experts_per_token: int
    hidden_dim: int
    max_num_tokens: int
    in_dtype: torch.dtype = torch.float16
    out_dtype: torch.dtype = torch.float16


@dataclass
class RankTestData:
    num_tokens: int
    indices: torch.Tensor  # the experts of each token, all different: (num_tokens, experts_per_token), int32
    weights: torch.Tensor  # of their results: the same shape, float32
    x: torch.Tensor  # the tokens: (num_tokens, hidden_dim)
    # Factors of the experts that live here: (num_experts / world_size, 1, 1), float32.
    expert_local_weight: torch.Tensor


# the configuration, this rank's tokens and experts, rank, world_size
input_t = tuple[MoEConfig, RankTestData, int, int]
output_t = torch.Tensor
