"""Factorisations in float64, by LAPACK."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.problems.oracle import Oracle


def cholesky(data: torch.Tensor) -> torch.Tensor:
    """LAPACK's factor in float64, by numpy."""
    return torch.from_numpy(np.linalg.cholesky(data.double().numpy()))


def eigh(data: torch.Tensor) -> list[torch.Tensor]:
    """LAPACK's eigenvectors and eigenvalues in float64, by numpy."""
    values, vectors = np.linalg.eigh(data.double().numpy())
    return [torch.from_numpy(vectors), torch.from_numpy(values)]


def qr(data: torch.Tensor) -> list[torch.Tensor]:
    """LAPACK's factors in float64, by numpy."""
    factors = [np.linalg.qr(matrix, mode="raw") for matrix in data.double().numpy()]
    # In Fortran's order.
    return [torch.from_numpy(np.stack(each)) for each in ([h.T for h, _ in factors], [tau for _, tau in factors])]


ORACLES = {
    "cholesky": Oracle(
        expected=cholesky, dtype=torch.float32, tests=17, benchmarks=15, largest={"batch": 1, "n": 32768}, unique=False
    ),
    "eigh": Oracle(
        expected=eigh, dtype=torch.float32, tests=39, benchmarks=13, largest={"batch": 8, "n": 2048}, unique=False
    ),
    "qr": Oracle(
        expected=qr, dtype=torch.float32, tests=19, benchmarks=7, largest={"batch": 640, "n": 512}, unique=False
    ),
    "qr_v2": Oracle(
        expected=qr,
        dtype=torch.float32,
        tests=22,
        benchmarks=12,
        largest={"batch": 640, "n": 512, "case": "mixed"},
        unique=False,
    ),
}
