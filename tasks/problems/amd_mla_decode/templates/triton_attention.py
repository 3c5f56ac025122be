import torch
import triton
import triton.language as tl
from task import input_t, output_t

# The products with the cache are one kernel, a program per sequence and 16 heads; the projections are the library's.


@triton.jit
def attention_kernel(
    query,
    rotated_query,
    cache,
    rotated_keys,
    latent,
    length,
    sequence_values,
    heads,
    scale,
    RANK: tl.constexpr,
    ROPE: tl.constexpr,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    there = head[:, None] < heads
    ranks, ropes = tl.arange(0, RANK), tl.arange(0, ROPE)
    row = sequence * heads + head[:, None]
    left = tl.load(query + row * RANK + ranks[None, :], mask=there, other=0.0)
    left_rope = tl.load(rotated_query + row * ROPE + ropes[None, :], mask=there, other=0.0)
    largest = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((HEADS,), dtype=tl.float32)
    total = tl.zeros((HEADS, RANK), dtype=tl.float32)
    for start in range(0, length, TILE):
        entries = start + tl.arange(0, TILE)
        inside = entries < length
        offsets = sequence * sequence_values + entries[:, None] * (RANK + ROPE) + ranks[None, :]
        values = tl.load(cache + offsets, mask=inside[:, None], other=0.0)
        offsets = (sequence * length + entries[:, None]) * ROPE + ropes[None, :]
        keys = tl.load(rotated_keys + offsets, mask=inside[:, None], other=0.0)
        scores = (tl.dot(left, tl.trans(values)) + tl.dot(left_rope, tl.trans(keys))) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - above[:, None])
        shrink = tl.exp(largest - above)
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
        total = total * shrink[:, None] + tl.dot(weights.to(tl.bfloat16), values)
        largest = above
    total = total / weight_sum[:, None]
    tl.store(latent + row * RANK + ranks[None, :], total.to(tl.bfloat16), mask=there)


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
    positions = torch.arange(length, device=x.device)

    queries = (token @ config.Q_proj_down_weight.T @ config.Q_proj_up_weight.T).view(x.shape[0], heads, -1)
    ups = config.KV_proj_up_weight.view(heads, nope + config.v_head_dim, rank)
    absorbed = torch.bmm(queries[..., :nope].transpose(0, 1), ups[:, :nope]).transpose(0, 1).contiguous()
    latent = torch.empty_like(absorbed)
    attention_kernel[(x.shape[0], triton.cdiv(heads, 16))](
        absorbed,
        rotate(queries[..., nope:], positions[-1:]),
        kv_cache.data,
        rotate(kv_cache.data[:, :length, rank:], positions),
        latent,
        length,
        kv_cache.data[0].numel(),
        heads,
        (nope + config.qk_rope_head_dim) ** -0.5,
        RANK=rank,
        ROPE=config.qk_rope_head_dim,
        HEADS=16,
        TILE=16,
    )
    values = torch.bmm(latent.transpose(0, 1), ups[:, nope:].mT).transpose(0, 1)
    return (values.flatten(1) @ config.wo_weight.T)[:, None], kv_cache.data
