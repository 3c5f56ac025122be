import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def block_sums(values, sums, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(values + offsets, mask=offsets < size, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(block, axis=0))


@triton.jit
def block_scans(values, before, output, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(values + offsets, mask=offsets < size, other=0.0)
    total = tl.cumsum(block, axis=0) + tl.load(before + tl.program_id(0))
    tl.store(output + offsets, total, mask=offsets < size)


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    size, block = values.numel(), 1024
    sums = torch.empty(triton.cdiv(size, block), device=values.device)
    block_sums[(sums.numel(),)](values, sums, size, BLOCK=block)
    # What comes before each block, in float64: few numbers, and each is in many results.
    before = (sums.cumsum(dim=0, dtype=torch.float64) - sums).float()
    block_scans[(sums.numel(),)](values, before, output, size, BLOCK=block)
    return output
