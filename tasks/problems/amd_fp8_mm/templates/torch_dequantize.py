from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    rows = a_scale.repeat_interleave(128, dim=1)
    columns = b_scale.repeat_interleave(128, dim=0)[: b.shape[0]].repeat_interleave(128, dim=1)
    c.copy_((a.float() * rows) @ (b.float() * columns).T)
    return c
