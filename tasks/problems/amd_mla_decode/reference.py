import math

import torch
from task import Config, KVCache, input_t, output_t
from utils import make_match_reference, verbose_allequal

# Sequences at a time, so that the largest case needs a gigabyte or two beside its input, not ten.
SEQUENCES_AT_A_TIME = 16


def rotated(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    # (..., positions, size), float32. Positions, frequencies, angles, sines and cosines are bfloat16 numbers,
    # and so is the base: 10,000 rounds to 9,984.
    size = values.shape[-1] // 2
    exponents = torch.arange(size, dtype=torch.float64, device=values.device) / size
    frequencies = (9984.0**-exponents).bfloat16().float()
    angles = (positions.bfloat16().float()[:, None] * frequencies).bfloat16().float()
    cos, sin = angles.cos().bfloat16().float(), angles.sin().bfloat16().float()
    first, second = values[..., :size], values[..., size:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(config: Config, queries: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    # (sequences, heads, nope + rope) and (sequences, length, rank + rope) -> (sequences, heads, v_head_dim). A product
    # with a key of a head is one of a query that went back through the up projection with what the cache holds: the
    # same sums in another order, and keys and values of all heads need not be in memory.
    nope, rank, length = config.qk_nope_head_dim, config.kv_lora_rank, cache.shape[1]
    ups = config.KV_proj_up_weight.float().view(config.n_heads, nope + config.v_head_dim, rank)
    positions = torch.arange(length, device=cache.device)
    latent = cache[..., :rank].float()
    scores = torch.einsum("bhd,hdr->bhr", queries[..., :nope], ups[:, :nope]) @ latent.mT
    scores += rotated(queries[..., nope:], positions[-1:]) @ rotated(cache[..., rank:].float(), positions).mT
    weights = (scores * (nope + config.qk_rope_head_dim) ** -0.5).softmax(dim=-1)
    return torch.einsum("bhr,hdr->bhd", weights @ latent, ups[:, nope:])


def ref_kernel(data: input_t) -> output_t:
    config, x, kv_cache = data
    token = x[:, 0].float()
    cache, length = kv_cache.data.clone(), kv_cache.seq_len + 1
    cache[:, length - 1] = (token @ config.KV_proj_down_weight.float().T).to(cache.dtype)
    queries = token @ config.Q_proj_down_weight.float().T @ config.Q_proj_up_weight.float().T
    queries = queries.view(x.shape[0], config.n_heads, -1)
    heads = [
        attend(
            config, queries[start : start + SEQUENCES_AT_A_TIME], cache[start : start + SEQUENCES_AT_A_TIME, :length]
        )
        for start in range(0, x.shape[0], SEQUENCES_AT_A_TIME)
    ]
    output = torch.cat(heads).flatten(1) @ config.wo_weight.float().T
    return output[:, None].to(x.dtype), cache


def generate_input(
    *, batchsize: int, dim: int, dq: int, prefill: int, nheads: int, maxlen: int, seed: int, edge: int = 0
) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    rank, rope, nope, v = 512, 64, 128, 128

    def normal(*shape: int, deviation: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator).mul_(deviation)

    # Scores have a variance of 1. Means of values that are weighted by their exponentials have one of e / length from
    # chance, and one of 2/3 / rank because what a key is large in is large in its value, too. The output's deviation is
    # 1/6 whatever the length: otherwise the longer the cache, the less of it a wrong kernel would have to read.
    output_deviation = (math.e / (prefill + 1) + nope / (nope + rope) / rank) ** -0.5 / 6
    config = Config(
        batch_size=batchsize,
        dim=dim,
        n_heads=nheads,
        q_lora_rank=dq,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=v,
        seq_len=1,
        max_seq_len=maxlen,
        kv_cache_shape=(batchsize, maxlen, rank + rope),
        Q_proj_down_weight=normal(dq, dim, deviation=dim**-0.5),
        Q_proj_up_weight=normal((nope + rope) * nheads, dq, deviation=dq**-0.5),
        KV_proj_down_weight=normal(rank + rope, dim, deviation=dim**-0.5),
        KV_proj_up_weight=normal((nope + v) * nheads, rank, deviation=rank**-0.5),
        wo_weight=normal(dim, v * nheads, deviation=output_deviation * (v * nheads) ** -0.5),
    )
    x = normal(batchsize, 1, dim)
    if edge:
        # A token of zeros attends to every entry alike.
        x[::2] = 0
    # Beyond the entries in use there are numbers, too, as in a cache that was used before: who reads them is wrong.
    return config, x, KVCache(data=normal(*config.kv_cache_shape), seq_len=prefill)


# Outputs are about 1/6. A kernel that rounds whatever it stores to bfloat16 (each query, key, score, weight, value and
# sum by 2**-9 of it at most) is off by 1e-3 at 128, 1,024 and 6,144 entries alike, in random directions: with a million
# outputs, that needs the absolute tolerance. Where one entry takes most of a head's weight the errors of that head are
# larger; with 8 heads and more, 0.006 is the most that was seen in 6,000 sequences, with 2 heads one in 6,000 passes
# 0.009. A cache read in eight bits costs three to six times as much as rounding does, and is found at any length. So
# are wrong angles, and with up to 2,048 entries, as the tests have, the new one left out.
match = make_match_reference(ref_kernel, rtol=2e-2, atol=1e-2)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    good, message = match(data, output)
    if not good:
        return good, message
    # All entries but the new ones are as they were.
    cache, place = data[2].data.clone(), data[2].seq_len
    cache[:, place] = output[1][:, place]
    lines = verbose_allequal(output[1], cache)
    return not lines, "; ".join(lines)
