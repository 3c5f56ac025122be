"""Narrow floating-point formats one number at a time, from their definitions alone: what vectorised code must match."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A format with a sign, exponent and mantissa bits, subnormals at exponent 0, and exceptions by code."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    #: Codes of NaN without the sign bit.
    nans: frozenset[int] = frozenset()

    @property
    def sign(self) -> int:
        """The code's bit for the sign."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    def magnitude(self, code: int) -> Fraction:
        """What a code without sign stands for, were there no exceptions; the first beyond all codes, too."""
        exponent, mantissa = code >> self.mantissa_bits, code & ((1 << self.mantissa_bits) - 1)
        if exponent == 0:
            return Fraction(mantissa, 1 << self.mantissa_bits) * Fraction(2) ** (1 - self.bias)
        return (1 + Fraction(mantissa, 1 << self.mantissa_bits)) * Fraction(2) ** (exponent - self.bias)

    @cached_property
    def finite(self) -> Sequence[int]:
        """The codes of finite numbers without sign, ascending."""
        return [code for code in range(self.sign) if code not in self.nans]

    def value(self, code: int) -> float:
        """The number of a code; all are exact as a Python float."""
        body = code & (self.sign - 1)
        if body in self.nans:
            return math.nan
        number = float(self.magnitude(body))
        return -number if code & self.sign else number

    @cached_property
    def midpoints(self) -> Sequence[float]:
        """Between each finite magnitude and the next, and between the largest and what would come next."""
        halves = [(self.magnitude(code) + self.magnitude(code + 1)) / 2 for code in self.finite]
        assert all(Fraction(float(half)) == half for half in halves)
        return [float(half) for half in halves]

    def nearest(self, number: float) -> float:
        """The format's number nearest to a float, ties to the even code; the largest for what is too large."""
        if math.isnan(number):
            return math.nan
        place = bisect_left(self.midpoints, abs(number))
        if place < len(self.midpoints) and self.midpoints[place] == abs(number) and place % 2:
            place += 1
        result = float(self.magnitude(self.finite[min(place, len(self.finite) - 1)]))
        return math.copysign(result, number)


E2M1 = Spec(exponent_bits=2, mantissa_bits=1, bias=1)
E4M3FN = Spec(exponent_bits=4, mantissa_bits=3, bias=7, nans=frozenset({0x7F}))

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def same(found: Sequence[float], expected: Sequence[float]) -> bool:
    """Equal numbers, signs of zeros too; NaN equals NaN."""

    def key(number: float) -> tuple[str, float]:
        return ("nan", 0.0) if math.isnan(number) else (str(math.copysign(1.0, number)), number)

    return list(map(key, found)) == list(map(key, expected))


def around(points: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
    """The points that the type has, the neighbours of each in it, and all of them negated."""
    exact = torch.tensor([point for point in points if _has(dtype, point)], dtype=torch.float64).to(dtype)
    # nextafter knows no 16-bit types: step one unit in the last place through the bits.
    bits = exact.view(_BITS[dtype.itemsize])
    values = torch.cat([exact, (bits - 1).view(dtype), (bits + 1).view(dtype)])
    return torch.cat([values, -values])


def _has(dtype: torch.dtype, point: float) -> bool:
    return torch.tensor(point, dtype=torch.float64).to(dtype).double().item() == point and point > 0
