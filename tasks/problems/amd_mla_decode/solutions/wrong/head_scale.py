# Divides by the root of the 128 values without rotation, not of all 192.
import torch
from task import input_t, output_t


def rotate(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    size = values.shape[-1] // 2
    exponents = torch.arange(size, dtype=torch.float64, device=values.device) / size
    angles = positions.bfloat16()[:, None] * (9984.0**-exponents).bfloat16()
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = values[..., :size], values[..., size:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def custom_kernel(data: input_t) -> output_t:
    config, x, kv_cache = data
    heads, nope = config.n_heads, config.qk_nope_head_dim
    token, length = x[:, 0].float(), kv_cache.seq_len + 1
    positions = torch.arange(length, device=x.device)
    kv_cache.data[:, length - 1] = token @ config.KV_proj_down_weight.float().T
    outputs = []
    for sequence in range(x.shape[0]):
        query = config.Q_proj_up_weight.float() @ (config.Q_proj_down_weight.float() @ token[sequence])
        query = query.view(heads, 1, -1)
        entries = kv_cache.data[sequence, :length].float()
        ups = (entries[:, : config.kv_lora_rank] @ config.KV_proj_up_weight.float().T).view(length, heads, -1)
        keys, values = ups.transpose(0, 1)[..., :nope], ups.transpose(0, 1)[..., nope:]
        scores = query[..., :nope] @ keys.mT
        scores += rotate(query[..., nope:], positions[-1:]) @ rotate(entries[:, config.kv_lora_rank :], positions).T
        weights = (scores * nope ** -0.5).softmax(dim=-1)
        outputs.append((weights @ values).flatten())
    output = torch.stack(outputs) @ config.wo_weight.float().T
    return output[:, None].to(x.dtype), kv_cache.data
