# Takes the scales of b for 64 rows each, from the first ones.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    rows = a_scale.repeat_interleave(128, dim=1)
    tiles = b_scale.repeat(2, 1).repeat_interleave(64, dim=0)[: b.shape[0]]
    return c.copy_((a.float() * rows) @ (b.float() * tiles.repeat_interleave(128, dim=1)).T)
