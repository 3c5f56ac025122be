"""Products of NVFP4 matrices in float64, from the format's definition alone."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle

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


def nvfp4_dual_gemm(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The silu of the first product times the second."""
    a, b1, b2, sfa, sfb1, sfb2 = data[:6]
    gate = product(a, b1, sfa, sfb1)
    return gate / (1 + torch.exp(-gate)) * product(a, b2, sfa, sfb2)


def nvfp4_gemm(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The products of a's rows with b's."""
    return product(*data[:4])


def nvfp4_gemv(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The products of a's rows with the first row of b."""
    a, b, sfa, sfb = data[:4]
    return product(a, b[:1], sfa, sfb[:1])


def nvfp4_group_gemm(data: tuple[list[Any], ...]) -> list[torch.Tensor]:
    """The product of each problem."""
    abc_tensors, sfasfb_tensors = data[:2]
    return [product(a, b, *scales) for (a, b, _), scales in zip(abc_tensors, sfasfb_tensors, strict=True)]


ORACLES = {
    "nvfp4_dual_gemm": Oracle(nvfp4_dual_gemm, torch.float16),
    "nvfp4_gemm": Oracle(nvfp4_gemm, torch.float16),
    "nvfp4_gemv": Oracle(nvfp4_gemv, torch.float16),
    "nvfp4_group_gemm": Oracle(nvfp4_group_gemm, torch.float16),
}
