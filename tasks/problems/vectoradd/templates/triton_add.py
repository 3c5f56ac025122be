import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def add_kernel(a, b, output, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask)
    tl.store(output + offsets, total, mask=mask)


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    output = torch.empty_like(a)
    size = a.numel()
    add_kernel[(triton.cdiv(size, 1024),)](a, b, output, size, BLOCK=1024)
    return output
