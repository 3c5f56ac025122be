"""vectoradd."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sum of the first two arguments."""
    return data[0].double() + data[1].double()


ORACLE = Oracle(expected=expected, dtype=torch.float16, tests=5, benchmarks=5, largest={"size": 16384})
