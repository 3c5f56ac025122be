"""gated_deltanet_chunk_fwd_h."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Step by step: each makes the state smaller by its own gate, and adds its value for its key."""
    k, w, u, g = (each.double() for each in data)
    state = k.new_zeros(k.shape[0], k.shape[2], k.shape[3], u.shape[3])
    h, v_new = [], []
    for step in range(k.shape[1]):
        if step % 64 == 0:
            h.append(state.clone())
        v_new.append(u[:, step] - torch.einsum("bhk,bhkv->bhv", w[:, step], h[-1]))
        gate = g[:, step] - (g[:, step - 1] if step % 64 else 0)
        state = torch.exp(gate)[..., None, None] * state + k[:, step, :, :, None] * v_new[-1][:, :, None]
    return [torch.stack(h, dim=1), torch.stack(v_new, dim=1)]


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=3, benchmarks=3, largest={"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}
)
