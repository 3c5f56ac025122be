"""NVFP4 matrices in float64, for the oracles of the tasks that take them; from the format's definition alone."""

from __future__ import annotations

import torch

_MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
_VALUES = torch.cat([_MAGNITUDES, -_MAGNITUDES])


def wide(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """(rows, k / 2, l) pairs and (rows, k / 16, l) scales -> (rows, k, l)."""
    raw = packed.view(torch.uint8).long()
    values = torch.empty(raw.shape[0], raw.shape[1] * 2, raw.shape[2], dtype=torch.float64)
    values[:, 0::2], values[:, 1::2] = _VALUES[raw % 16], _VALUES[raw // 16]
    return values * scales.double().repeat_interleave(16, dim=1)


def product(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """The products of a's rows with b's, batch by batch: (m, n, l)."""
    return torch.einsum("mkl,nkl->mnl", wide(a, sfa), wide(b, sfb))
