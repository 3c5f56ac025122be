"""trimul."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle


def normalized(values: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """A layer norm by its definition."""
    centred = values - values.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def expected(data: tuple[Any, ...]) -> torch.Tensor:
    """The steps of the description, one pair of rows after the other."""
    x, mask, stored, _ = data
    weights = {name: weight.double() for name, weight in stored.items()}
    normed = normalized(x.double(), weights, "norm")
    gates = {
        name: 1 / (1 + torch.exp(-(normed @ weights[f"{name}_gate.weight"].T))) for name in ("left", "right", "out")
    }
    left, right = (
        normed @ weights[f"{side}_proj.weight"].T * gates[side] * mask[..., None].double() for side in ("left", "right")
    )
    rows = range(x.shape[1])
    sums = torch.stack([torch.stack([(left[:, i] * right[:, j]).sum(dim=1) for j in rows], dim=1) for i in rows], dim=1)
    output: torch.Tensor = (normalized(sums, weights, "to_out_norm") * gates["out"]) @ weights["to_out.weight"].T
    return output


ORACLE = Oracle(
    expected=expected,
    dtype=torch.float32,
    tests=18,
    benchmarks=7,
    largest={"seqlen": 1024, "bs": 1, "dim": 384, "hiddendim": 128},
)
