"""amd_moe."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle

Moe = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, int]]


def through(x: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """What an expert makes of one token."""
    gate, up, down = (weights[f"{name}.{index}.weight"].double() for index in range(3))
    gated = gate.T @ x
    return down.T @ (gated / (1 + torch.exp(-gated)) * (up.T @ x))


def expected(data: Moe) -> torch.Tensor:
    """One token after the other, through each of its experts."""
    tokens, weights, config = data
    total = torch.zeros(tokens.shape, dtype=torch.float64)
    for place in range(tokens.shape[0] * tokens.shape[1]):
        x = tokens.flatten(0, 1)[place].double()
        powers = torch.exp(weights["router.weight"].double() @ x)
        scores = powers / powers.sum()
        sums = through(x, weights, "shared_experts")
        for index in scores.argsort(descending=True)[: config["n_experts_per_token"]].tolist():
            sums += scores[index] * through(x, weights, f"experts.{index}")
        total.view(-1, tokens.shape[2])[place] = sums
    return total


ORACLE = Oracle(
    expected=expected,
    dtype=torch.float16,
    tests=3,
    benchmarks=2,
    largest={"dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32, "bs": 1, "seqlen": 8192},
)
