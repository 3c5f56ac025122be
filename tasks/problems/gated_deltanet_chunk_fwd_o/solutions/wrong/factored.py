# Makes exp(g[i] - g[j]) of two factors, one of which overflows where a step forgets everything.
import torch
from task import input_t, output_t

CHUNK = 64


def chunks(values: torch.Tensor) -> torch.Tensor:
    # (B, T, H, ...) -> (B, H, T / 64, 64, ...)
    return values.unflatten(1, (-1, CHUNK)).movedim(3, 1)


def steps(values: torch.Tensor) -> torch.Tensor:
    return values.movedim(1, 3).flatten(1, 2).contiguous()


def custom_kernel(data: input_t) -> output_t:
    q, k, v_new, h, g = data
    q, k, v, g, h = chunks(q), chunks(k), chunks(v_new), chunks(g), h.transpose(1, 2)
    products = (q * g.exp().unsqueeze(-1)) @ (k * (-g).exp().unsqueeze(-1)).mT
    o = g.exp().unsqueeze(-1) * (q @ h) + products.tril() @ v
    return steps(o * q.shape[-1] ** -0.5)
