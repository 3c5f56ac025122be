"""gated_deltanet_recompute_w_u."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Column after column of A: what a step adds to all steps of its chunk."""
    k, v, beta, matrix, g = (each.double().reshape(each.shape[0], -1, 64, *each.shape[2:]) for each in data)
    w, u = torch.zeros_like(k), torch.zeros_like(v)
    for place in range(64):
        factor = matrix[..., place] * beta[:, :, place, None]
        u += factor.unsqueeze(-1) * v[:, :, place, None]
        w += (factor * torch.exp(g[:, :, place, None])).unsqueeze(-1) * k[:, :, place, None]
    return [w.flatten(1, 2), u.flatten(1, 2)]


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=3, benchmarks=3, largest={"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}
)
