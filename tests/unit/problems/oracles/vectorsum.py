"""vectorsum."""

from __future__ import annotations

import math

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sum of the first argument, by a correctly rounded algorithm."""
    return torch.tensor([math.fsum(data[0].tolist())], dtype=torch.float64)


ORACLE = Oracle(expected=expected, dtype=torch.float32, tests=5, benchmarks=6, largest={"size": 52428800})
