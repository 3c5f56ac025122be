import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def count(values, output, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    block = tl.load(values + offsets, mask=inside, other=0).to(tl.int32)
    tl.atomic_add(output + block, tl.full((BLOCK,), 1, dtype=tl.int64), mask=inside)


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    output.zero_()
    size = values.numel()
    count[(triton.cdiv(size, 1024),)](values, output, size, BLOCK=1024)
    return output
