import torch
import torch.distributed as dist
import triton
import triton.language as tl
from task import input_t, output_t

# The local product is a kernel of its own, between what the library sends: a place from which to overlap the two, by
# sending the rows of one rank while those of the next are multiplied.


@triton.jit
def linear_kernel(x, weight, bias, output, m, n, k, HAS_BIAS: tl.constexpr, TILE: tl.constexpr, K_STEP: tl.constexpr):
    rows = (tl.program_id(0) * TILE + tl.arange(0, TILE)).to(tl.int64)
    columns = (tl.program_id(1) * TILE + tl.arange(0, TILE)).to(tl.int64)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, k, K_STEP):
        inner = start + tl.arange(0, K_STEP)
        left_mask = (rows < m)[:, None] & (inner < k)[None, :]
        right_mask = (columns < n)[:, None] & (inner < k)[None, :]
        left = tl.load(x + rows[:, None] * k + inner[None, :], mask=left_mask, other=0.0)
        right = tl.load(weight + columns[:, None] * k + inner[None, :], mask=right_mask, other=0.0)
        total = tl.dot(left, tl.trans(right), total)
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(output + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    m, k = x.shape
    n = weight.shape[0]
    output = torch.empty(m, n, dtype=x.dtype, device=x.device)
    tile = 64
    grid = (triton.cdiv(m, tile), triton.cdiv(n, tile))
    # Without a bias its place is taken by what is not read.
    linear_kernel[grid](
        x,
        weight,
        weight if bias is None else bias,
        output,
        m,
        n,
        k,
        HAS_BIAS=bias is not None,
        TILE=tile,
        K_STEP=64,
    )
    return output



def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    part = linear(input.contiguous(), weight.contiguous(), bias)
    output = torch.empty(part.shape[0] // dist.get_world_size(), part.shape[1], dtype=part.dtype, device=part.device)
    dist.reduce_scatter_tensor(output, part)
    return output
