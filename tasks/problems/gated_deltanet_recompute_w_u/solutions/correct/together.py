# One product for keys and values together, with the part of A below its diagonal.
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
    both = torch.cat((k * g.exp().unsqueeze(-1), v), dim=-1) * beta.unsqueeze(-1)
    # Ones on the diagonal: what is below it is added to the rows themselves.
    w, u = (both + A.tril(-1) @ both).split((k.shape[-1], v.shape[-1]), dim=-1)
    return steps(w), steps(u)
