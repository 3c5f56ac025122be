"""amd_fp8_mm."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def value(code: int) -> float:
    """What a code of e4m3fnuz stands for."""
    if code == 0x80:
        return float("nan")
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = (mantissa + (8 if exponent else 0)) * 2.0 ** (max(exponent, 1) - 11)
    return -magnitude if code & 0x80 else magnitude


VALUES = torch.tensor([value(code) for code in range(256)], dtype=torch.float64)


def wide(codes: torch.Tensor, scales: torch.Tensor, rows: int) -> torch.Tensor:
    """A matrix of codes in float64, by the task's description: a scale per so many rows and 128 columns."""
    row, column = torch.meshgrid(*(torch.arange(size) for size in codes.shape), indexing="ij")
    return VALUES[codes.view(torch.uint8).int()] * scales[row // rows, column // 128].double()


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The product of the two matrices."""
    a, b, a_scale, b_scale, _ = data
    return wide(a, a_scale, 1) @ wide(b, b_scale, 128).T


ORACLE = Oracle(
    expected=expected, dtype=torch.bfloat16, tests=11, benchmarks=18, largest={"m": 6144, "n": 7168, "k": 2304}
)
