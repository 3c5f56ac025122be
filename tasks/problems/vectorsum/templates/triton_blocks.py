import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def block_sums(values, sums, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(values + offsets, mask=offsets < size, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(block, axis=0))


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    size, block = values.numel(), 4096
    sums = torch.empty(triton.cdiv(size, block), device=values.device)
    block_sums[(sums.numel(),)](values, sums, size, BLOCK=block)
    return torch.sum(sums, dim=0, keepdim=True, out=output)
