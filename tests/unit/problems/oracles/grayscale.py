"""grayscale."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Each pixel times the weights of the description."""
    weights = torch.tensor([2989, 5870, 1140], dtype=torch.float64)
    return data[0].double() @ weights / 10000


ORACLE = Oracle(expected=expected, dtype=torch.float32, tests=3, benchmarks=6, largest={"size": 16384})
