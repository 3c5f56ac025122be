# Makes each chunk's effect on the state a K by K matrix, all at once; only their products are sequential.
import torch
from task import input_t, output_t

CHUNK = 64


def chunks(values: torch.Tensor) -> torch.Tensor:
    # (B, T, H, ...) -> (B, H, T / 64, 64, ...)
    return values.unflatten(1, (-1, CHUNK)).movedim(3, 1)


def steps(values: torch.Tensor) -> torch.Tensor:
    return values.movedim(1, 3).flatten(1, 2).contiguous()


def custom_kernel(data: input_t) -> output_t:
    k, w, u, g = (chunks(each) for each in data)
    keys = (k * (g[..., -1:] - g).exp().unsqueeze(-1)).mT
    one = torch.eye(k.shape[-1], device=k.device)
    transitions = g[..., -1].exp()[..., None, None] * one - keys @ w
    added = keys @ u
    h = torch.zeros_like(added)
    for chunk in range(1, k.shape[2]):
        h[:, :, chunk] = transitions[:, :, chunk - 1] @ h[:, :, chunk - 1] + added[:, :, chunk - 1]
    return h.transpose(1, 2).contiguous(), steps(u - w @ h)
