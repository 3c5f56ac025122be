# One product with the values and the state together; what is later has a gate of minus infinity.
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
    q = q * q.shape[-1] ** -0.5
    place = torch.arange(CHUNK, device=q.device)
    later = place[None, :] > place[:, None]
    differences = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(later, float("-inf"))
    both = torch.cat(((q @ k.mT) * differences.exp(), q * g.exp().unsqueeze(-1)), dim=-1)
    return steps(both @ torch.cat((v, h), dim=-2))
