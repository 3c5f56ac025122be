# Scales the columns of A once, instead of keys and values.
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
    # (..., 64, 64): beta and gates belong to the columns
    writes = A * beta.unsqueeze(-2)
    w, u = (writes * g.exp().unsqueeze(-2)) @ k, writes @ v
    return steps(w), steps(u)
