"""gated_deltanet_chunk_fwd_o."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Step by step, from each chunk's state on: what a query finds in the state after its step."""
    q, k, v_new, h, g = (each.double() for each in data)
    state, rows = h[:, 0], []
    for step in range(q.shape[1]):
        first = step % 64 == 0
        state = h[:, step // 64] if first else state
        gate = g[:, step] - (0 if first else g[:, step - 1])
        state = torch.exp(gate)[..., None, None] * state + k[:, step, :, :, None] * v_new[:, step, :, None]
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, step], state) / q.shape[3] ** 0.5)
    return torch.stack(rows, dim=1)


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=3, benchmarks=3, largest={"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}
)
