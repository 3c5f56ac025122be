import torch
from task import input_t, output_t


def rotate(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    size = values.shape[-1] // 2
    exponents = torch.arange(size, dtype=torch.float64, device=values.device) / size
    angles = positions.bfloat16()[:, None] * (9984.0**-exponents).bfloat16()
    cos, sin = angles.cos(), angles.sin()
    first, second = values[..., :size], values[..., size:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def custom_kernel(data: input_t) -> output_t:
    config, x, kv_cache = data
    heads, nope, rank = config.n_heads, config.qk_nope_head_dim, config.kv_lora_rank
    token, length = x[:, 0], kv_cache.seq_len + 1
    kv_cache.data[:, length - 1] = token @ config.KV_proj_down_weight.T
    entries = kv_cache.data[:, :length]
    positions = torch.arange(length, device=x.device)

    queries = (token @ config.Q_proj_down_weight.T @ config.Q_proj_up_weight.T).view(x.shape[0], heads, -1)
    ups = config.KV_proj_up_weight.view(heads, nope + config.v_head_dim, rank)
    # The up projection of the keys on the side of the queries: (batch, heads, rank)
    absorbed = torch.bmm(queries[..., :nope].transpose(0, 1), ups[:, :nope]).transpose(0, 1)
    query = torch.cat((absorbed, rotate(queries[..., nope:], positions[-1:])), dim=-1)
    keys = torch.cat((entries[..., :rank], rotate(entries[..., rank:], positions)), dim=-1)
    scores = torch.bmm(query, keys.mT).float() * (nope + config.qk_rope_head_dim) ** -0.5
    latent = torch.bmm(scores.softmax(dim=-1).bfloat16(), entries[..., :rank])
    values = torch.bmm(latent.transpose(0, 1), ups[:, nope:].mT).transpose(0, 1)
    return (values.flatten(1) @ config.wo_weight.T)[:, None], kv_cache.data
