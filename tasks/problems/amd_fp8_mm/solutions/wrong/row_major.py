# Reads the bytes of a as if they were in the order of rows.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    left = torch.as_strided(a, a.shape, (a.shape[1], 1)).float()
    rows = a_scale.repeat_interleave(128, dim=1)
    columns = b_scale.repeat_interleave(128, dim=0)[: b.shape[0]].repeat_interleave(128, dim=1)
    return c.copy_((left * rows) @ (b.float() * columns).T)
