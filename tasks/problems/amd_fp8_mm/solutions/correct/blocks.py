# Block by block, as matrix instructions for FP8 do it: the scales come after each block.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    columns = b_scale.repeat_interleave(128, dim=0)[: b.shape[0]]
    left, right = a.float(), b.float()
    total = a_scale.new_zeros(c.shape)
    for block in range(a_scale.shape[1]):
        part = slice(block * 128, (block + 1) * 128)
        total += (left[:, part] @ right[:, part].T) * a_scale[:, block, None] * columns[:, block]
    return c.copy_(total)
