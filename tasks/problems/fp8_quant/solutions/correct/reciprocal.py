# Multiplies by the reciprocal of the scale.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, x_q, x_s = data
    groups = x.unflatten(1, (x_s.shape[1], -1))
    largest = torch.linalg.vector_norm(groups, ord=float("inf"), dim=2).clamp(min=1e-10)
    x_q.copy_((groups * (448 / largest)[..., None]).flatten(1))
    return x_q, x_s.copy_(largest * (1 / 448))
