"""cholesky."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.problems.oracle import Oracle


def expected(data: torch.Tensor) -> torch.Tensor:
    """LAPACK's factor in float64, by numpy."""
    return torch.from_numpy(np.linalg.cholesky(data.double().numpy()))


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=17, benchmarks=15, largest={"batch": 1, "n": 32768}, unique=False
)
