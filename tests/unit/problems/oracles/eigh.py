"""eigh."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.problems.oracle import Oracle


def expected(data: torch.Tensor) -> list[torch.Tensor]:
    """LAPACK's eigenvectors and eigenvalues in float64, by numpy."""
    values, vectors = np.linalg.eigh(data.double().numpy())
    return [torch.from_numpy(vectors), torch.from_numpy(values)]


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=39, benchmarks=13, largest={"batch": 8, "n": 2048}, unique=False
)
