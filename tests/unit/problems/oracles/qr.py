"""qr."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.problems.oracle import Oracle


def expected(data: torch.Tensor) -> list[torch.Tensor]:
    """LAPACK's factors in float64, by numpy."""
    factors = [np.linalg.qr(matrix, mode="raw") for matrix in data.double().numpy()]
    # In Fortran's order.
    return [torch.from_numpy(np.stack(each)) for each in ([h.T for h, _ in factors], [tau for _, tau in factors])]


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=19, benchmarks=7, largest={"batch": 640, "n": 512}, unique=False
)
