"""nvfp4_gemm."""

from __future__ import annotations

import torch

from tests.unit.problems.nvfp4 import product
from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The products of a's rows with b's."""
    return product(*data[:4])


ORACLE = Oracle(
    expected=expected, dtype=torch.float16, tests=10, benchmarks=3, largest={"m": 128, "n": 7168, "k": 16384, "l": 1}
)
