"""nvfp4_gemv."""

from __future__ import annotations

import torch

from tests.unit.problems.nvfp4 import product
from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The products of a's rows with the first row of b."""
    a, b, sfa, sfb = data[:4]
    return product(a, b[:1], sfa, sfb[:1])


ORACLE = Oracle(expected=expected, dtype=torch.float16, tests=10, benchmarks=3, largest={"m": 7168, "k": 16384, "l": 1})
