"""The tasks of Gated DeltaNet together, and what their inputs are made to show."""

from __future__ import annotations

import pytest
import torch

from tasks.problems import gated_deltanet as stages
from tests.unit.problems.bench import Bench

CASE = {"B": 2, "T": 192, "H": 3, "K": 32, "V": 32, "seed": 7}


@pytest.mark.parametrize("bench", ["gated_deltanet_chunk_fwd_o"], indirect=True)
@pytest.mark.parametrize("edge", [0, 1])
def test_the_stages_make_the_layer(bench: Bench, edge: int) -> None:
    """What the last task answers is the delta rule with gates, step by step from the layer's own queries to values."""
    q, k, v, beta, g = (each.double() for each in stages.layer(**CASE, edge=edge))
    state, rows = q.new_zeros(2, 3, 32, 32), []
    for step in range(192):
        gate = torch.exp(g[:, step] - (g[:, step - 1] if step % 64 else 0))[..., None, None]
        key, factor = k[:, step, :, :, None], beta[:, step, :, None, None]
        state = gate * (state - factor * key @ (key.mT @ state)) + factor * key @ v[:, step, :, None]
        rows.append((q[:, step, :, None] @ state)[:, :, 0] / 32**0.5)
    answer = bench.module("reference").ref_kernel(bench.generate({**CASE, "edge": edge}))
    assert torch.allclose(answer.double(), torch.stack(rows, dim=1), rtol=1e-4, atol=1e-5)
