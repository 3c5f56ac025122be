"""nvfp4_dual_gemm."""

from __future__ import annotations

import torch

from tests.unit.problems.nvfp4 import product
from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The silu of the first product times the second."""
    a, b1, b2, sfa, sfb1, sfb2 = data[:6]
    gate = product(a, b1, sfa, sfb1)
    return gate / (1 + torch.exp(-gate)) * product(a, b2, sfa, sfb2)


ORACLE = Oracle(
    expected=expected, dtype=torch.float16, tests=10, benchmarks=4, largest={"m": 512, "n": 4096, "k": 7168, "l": 1}
)
