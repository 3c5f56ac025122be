"""moe_mxfp4."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle
from tests.unit.problems.oracles.mxfp4_mm import MAGNITUDES, rounded


def decoded(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """(rows, k) values of an expert's matrix, nibble by nibble."""
    raw = packed.view(torch.uint8).long()
    codes = torch.stack((raw % 16, raw // 16), dim=-1).flatten(1)
    values = MAGNITUDES[codes % 8] * (1 - 2 * (codes // 8))
    return values * (2.0 ** (scales.view(torch.uint8).double() - 127)).repeat_interleave(32, dim=1)


def expected(data: tuple[Any, ...]) -> torch.Tensor:
    """One token after the other, through each of its experts."""
    hidden_states, gate_up, down, gate_up_scale, down_scale, *_, factors, chosen, config = data
    tokens, total = rounded(hidden_states), torch.zeros(hidden_states.shape, dtype=torch.float64)
    inner = [decoded(*pair) for pair in zip(gate_up, gate_up_scale, strict=True)]
    outer = [decoded(*pair) for pair in zip(down, down_scale, strict=True)]
    for token, x in enumerate(tokens):
        for expert, factor in zip(chosen[token].tolist(), factors[token].tolist(), strict=True):
            gate, up = inner[expert][: config["d_expert"]] @ x, inner[expert][config["d_expert"] :] @ x
            hidden = (gate / (1 + torch.exp(-gate)) * up).bfloat16()
            total[token] += factor * (outer[expert] @ rounded(hidden[None], ties=True)[0])
    return total


ORACLE = Oracle(
    expected=expected,
    dtype=torch.bfloat16,
    tests=3,
    benchmarks=7,
    largest={"dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32, "bs": 512},
    off=0.5,
)
