import torch
import triton
import triton.language as tl
from task import input_t, output_t

# A program per sequence, with all heads. Where there are few sequences, several programs for each would share its
# entries; and MXFP4 is a quarter of what is read here.


@triton.jit
def attention_kernel(
    q,
    cache,
    places,
    output,
    scale,
    RANK: tl.constexpr,
    ROPE: tl.constexpr,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
):
    sequence = tl.program_id(0)
    start, end = tl.load(places + sequence), tl.load(places + sequence + 1)
    rows = sequence * HEADS + tl.arange(0, HEADS)
    ranks, ropes = tl.arange(0, RANK), RANK + tl.arange(0, ROPE)
    left = tl.load(q + rows[:, None] * (RANK + ROPE) + ranks[None, :])
    left_rope = tl.load(q + rows[:, None] * (RANK + ROPE) + ropes[None, :])
    largest = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((HEADS,), dtype=tl.float32)
    total = tl.zeros((HEADS, RANK), dtype=tl.float32)
    for first in range(start, end, TILE):
        entries = (first + tl.arange(0, TILE)).to(tl.int64)
        inside = entries < end
        offsets = entries[:, None] * (RANK + ROPE)
        values = tl.load(cache + offsets + ranks[None, :], mask=inside[:, None], other=0.0)
        keys = tl.load(cache + offsets + ropes[None, :], mask=inside[:, None], other=0.0)
        scores = (tl.dot(left, tl.trans(values)) + tl.dot(left_rope, tl.trans(keys))) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - above[:, None])
        shrink = tl.exp(largest - above)
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
        total = total * shrink[:, None] + tl.dot(weights.to(tl.bfloat16), values)
        largest = above
    total = total / weight_sum[:, None]
    tl.store(output + rows[:, None] * RANK + ranks[None, :], total.to(tl.bfloat16))


def custom_kernel(data: input_t) -> output_t:
    q, kv_data, qo_indptr, kv_indptr, config = data
    output = torch.empty(q.shape[0], 16, 512, dtype=q.dtype, device=q.device)
    attention_kernel[(q.shape[0],)](
        q, kv_data["bf16"], kv_indptr, output, config["sm_scale"], RANK=512, ROPE=64, HEADS=16, TILE=16
    )
    return output
