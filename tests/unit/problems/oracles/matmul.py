"""matmul."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of all products."""
    a, b, _ = data
    return (a.double().unsqueeze(2) * b.double()).sum(dim=1)


ORACLE = Oracle(
    expected=expected, dtype=torch.float16, tests=5, benchmarks=8, largest={"m": 4096, "n": 5120, "k": 4096}
)
