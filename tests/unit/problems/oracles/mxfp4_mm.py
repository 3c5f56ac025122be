"""mxfp4_mm."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle

MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def rounded(values: torch.Tensor, *, ties: bool = False) -> torch.Tensor:
    """What MXFP4 holds of (rows, k) values, by the task's description: frexp and the nearest of all candidates.

    With `ties` a value may be halfway between two; then it is the lower magnitude.
    """
    blocks = values.double().reshape(values.shape[0], -1, 32)
    fraction, exponent = torch.frexp(blocks.abs().amax(dim=-1, keepdim=True))
    # A fraction of 0.875 to 1 times a power of two: 1.75 and above times the one below.
    scale = 2.0 ** (exponent - 1 + (fraction >= 0.875).int() - 2).double()
    distances = ((blocks.abs() / scale).unsqueeze(-1) - MAGNITUDES).abs()
    nearest, code = distances.min(dim=-1)
    assert ties or bool(((distances == nearest.unsqueeze(-1)).sum(dim=-1) == 1).all()), "a value is halfway"
    return (MAGNITUDES[code] * scale).copysign(blocks).flatten(1)


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The product of the two matrices as MXFP4 holds them."""
    return rounded(data[0]) @ rounded(data[1]).T


ORACLE = Oracle(expected=expected, dtype=torch.bfloat16, tests=4, benchmarks=6, largest={"m": 64, "n": 7168, "k": 2048})
