# Takes every scale of a from the block before.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    rows = a_scale.roll(1, dims=1).repeat_interleave(128, dim=1)
    columns = b_scale.repeat_interleave(128, dim=0)[: b.shape[0]].repeat_interleave(128, dim=1)
    return c.copy_((a.float() * rows) @ (b.float() * columns).T)
