"""sort."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The first argument in Python's own order."""
    return torch.tensor(sorted(data[0].tolist()), dtype=torch.float64)


ORACLE = Oracle(expected=expected, dtype=torch.float32, tests=5, benchmarks=5, largest={"size": 100000000})
