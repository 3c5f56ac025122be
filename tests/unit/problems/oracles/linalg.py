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
    "cholesky": Oracle(cholesky, torch.float32, unique=False),
    "eigh": Oracle(eigh, torch.float32, unique=False),
    "qr": Oracle(qr, torch.float32, unique=False),
    "qr_v2": Oracle(qr, torch.float32, unique=False),
}
