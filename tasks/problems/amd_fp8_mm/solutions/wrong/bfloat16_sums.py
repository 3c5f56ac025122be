# Sums a block in float32, and the blocks in bfloat16.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    columns = b_scale.repeat_interleave(128, dim=0)[: b.shape[0]]
    c.zero_()
    for block in range(a_scale.shape[1]):
        part = slice(block * 128, (block + 1) * 128)
        c += ((a[:, part].float() @ b[:, part].float().T) * a_scale[:, block, None] * columns[:, block]).bfloat16()
    return c
