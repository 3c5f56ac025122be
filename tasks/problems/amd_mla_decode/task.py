from dataclasses import dataclass

import torch


@dataclass
class Config:
    batch_size: int
    dim: int
    n_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    seq_len: int
    max_seq_len: int
    kv_cache_shape: tuple[int, int, int]
    Q_proj_down_weight: torch.Tensor
    Q_proj_up_weight: torch.Tensor
    KV_proj_down_weight: torch.Tensor
    KV_proj_up_weight: torch.Tensor
    wo_weight: torch.Tensor


@dataclass
class KVCache:
    data: torch.Tensor
    seq_len: int


# config, x, kv_cache
input_t = tuple[Config, torch.Tensor, KVCache]
# the layer's output, and kv_cache.data with the new entries
output_t = tuple[torch.Tensor, torch.Tensor]
