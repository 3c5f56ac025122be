"""nvfp4_group_gemm."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.nvfp4 import product
from tests.unit.problems.oracle import Oracle


def expected(data: tuple[list[Any], ...]) -> list[torch.Tensor]:
    """The product of each problem."""
    abc_tensors, sfasfb_tensors = data[:2]
    return [product(a, b, *scales) for (a, b, _), scales in zip(abc_tensors, sfasfb_tensors, strict=True)]


ORACLE = Oracle(
    expected=expected, dtype=torch.float16, tests=10, benchmarks=4, largest={"k": [7168] * 8, "n": [4096] * 8, "g": 8}
)
