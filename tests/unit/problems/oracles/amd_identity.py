"""amd_identity."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The first argument."""
    return data[0].double()


ORACLE = Oracle(expected=expected, dtype=torch.float16, tests=5, benchmarks=7, largest={"size": 65536})
