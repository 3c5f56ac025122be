import triton
import triton.language as tl
from task import input_t, output_t

# A program per group.


@triton.jit
def scale_groups(x, x_q, x_s, size, SIZE: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    inside = tl.arange(0, SIZE) < size
    offsets = group * size + tl.arange(0, SIZE)
    values = tl.load(x + offsets, mask=inside, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-10) / 448.0
    tl.store(x_q + offsets, tl.minimum(tl.maximum(values / scale, -448.0), 448.0), mask=inside)
    tl.store(x_s + group, scale)


def custom_kernel(data: input_t) -> output_t:
    x, x_q, x_s = data
    size = x.shape[1] // x_s.shape[1]
    scale_groups[(x_s.numel(),)](x, x_q, x_s, size, SIZE=triton.next_power_of_2(size))
    return x_q, x_s
