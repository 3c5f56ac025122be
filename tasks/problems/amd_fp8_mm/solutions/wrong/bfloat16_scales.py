# Rounds the scales to bfloat16.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    rows = a_scale.bfloat16().float().repeat_interleave(128, dim=1)
    tiles = b_scale.bfloat16().float().repeat_interleave(128, dim=0)[: b.shape[0]]
    return c.copy_((a.float() * rows) @ (b.float() * tiles.repeat_interleave(128, dim=1)).T)
