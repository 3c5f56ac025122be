# Goes through the steps of all chunks, with a state that each step changes.
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
    q, k, v, g = chunks(q), chunks(k), chunks(v_new), chunks(g)
    gates = torch.diff(g, dim=-1, prepend=torch.zeros_like(g[..., :1])).exp()[..., None, None]
    state, o = h.transpose(1, 2), []
    for step in range(CHUNK):
        state = gates[..., step, :, :] * state + k[..., step, :, None] * v[..., step, None, :]
        o.append(q[..., step, None, :] @ state)
    return steps(torch.cat(o, dim=-2) * q.shape[-1] ** -0.5)
