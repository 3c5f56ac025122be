import torch
import triton
import triton.language as tl
from task import input_t, output_t

# A program per sequence, head and 32 columns of the state, which it keeps from chunk to chunk.


@triton.jit
def state_kernel(
    k,
    w,
    u,
    g,
    h,
    v_new,
    chunks,
    heads,
    K: tl.constexpr,
    V: tl.constexpr,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    keys, columns = tl.arange(0, K), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    state = tl.zeros((K, COLUMNS), dtype=tl.float32)
    for chunk in range(chunks):
        first = (sequence * chunks + chunk) * heads + head
        tl.store(h + (first * K + keys[:, None]) * V + columns[None, :], state)
        # Rows of the other tensors: a step of this chunk and head.
        start = (sequence * chunks + chunk) * STEPS
        rows = (start + tl.arange(0, STEPS)) * heads + head
        reads = tl.load(w + rows[:, None] * K + keys[None, :])
        new = tl.load(u + rows[:, None] * V + columns[None, :]) - tl.dot(reads, state)
        tl.store(v_new + rows[:, None] * V + columns[None, :], new)
        last = tl.load(g + (start + STEPS - 1) * heads + head)
        left = tl.exp(last - tl.load(g + rows))
        key = tl.load(k + rows[:, None] * K + keys[None, :])
        state = tl.exp(last) * state + tl.dot(tl.trans(key), new * left[:, None])


def custom_kernel(data: input_t) -> output_t:
    k, w, u, g = data
    (batch, length, heads, size), columns = k.shape, u.shape[-1]
    h = torch.empty(batch, length // 64, heads, size, columns, device=k.device)
    v_new = torch.empty_like(u)
    state_kernel[(batch, heads, columns // 32)](
        k, w, u, g, h, v_new, length // 64, heads, K=size, V=columns, STEPS=64, COLUMNS=32
    )
    return h, v_new
