"""Narrow floating-point formats one number at a time, from their definitions alone: what vectorised code must match."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
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
    #: Codes without the sign bit of NaN and infinity, where they come with both signs.
    nans: frozenset[int] = frozenset()
    infinity: int | None = None
    #: The format has one NaN, where the negative zero would be.
    fnuz: bool = False

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
        return [code for code in range(self.sign) if code not in self.nans and code != self.infinity]

    def value(self, code: int) -> float:
        """The number of a code; all are exact as a Python float."""
        body = code & (self.sign - 1)
        negative = bool(code & self.sign)
        if (self.fnuz and negative and body == 0) or body in self.nans:
            return math.nan
        number = math.inf if body == self.infinity else float(self.magnitude(body))
        return -number if negative else number

    @cached_property
    def midpoints(self) -> Sequence[float]:
        """Between each finite magnitude and the next, and between the largest and what would come next."""
        halves = [(self.magnitude(code) + self.magnitude(code + 1)) / 2 for code in self.finite]
        assert all(Fraction(float(half)) == half for half in halves)
        return [float(half) for half in halves]

    def nearest(self, number: float, *, saturate: bool = True) -> float:
        """The format's number nearest to a float, ties to the even code."""
        if math.isnan(number):
            return math.nan
        place = bisect_left(self.midpoints, abs(number))
        if place < len(self.midpoints) and self.midpoints[place] == abs(number) and place % 2:
            place += 1
        if place < len(self.finite):
            result = float(self.magnitude(self.finite[place]))
        elif saturate:
            result = float(self.magnitude(self.finite[-1]))
        else:
            result = math.nan if self.infinity is None else math.inf
        if result == 0 and self.fnuz:
            return 0.0
        return math.copysign(result, number)


E2M1 = Spec(exponent_bits=2, mantissa_bits=1, bias=1)
E4M3FN = Spec(exponent_bits=4, mantissa_bits=3, bias=7, nans=frozenset({0x7F}))
E4M3FNUZ = Spec(exponent_bits=4, mantissa_bits=3, bias=8, fnuz=True)
E5M2 = Spec(exponent_bits=5, mantissa_bits=2, bias=15, nans=frozenset({0x7D, 0x7E, 0x7F}), infinity=0x7C)
E5M2FNUZ = Spec(exponent_bits=5, mantissa_bits=2, bias=16, fnuz=True)

SPECS = {
    torch.float8_e4m3fn: E4M3FN,
    torch.float8_e4m3fnuz: E4M3FNUZ,
    torch.float8_e5m2: E5M2,
    torch.float8_e5m2fnuz: E5M2FNUZ,
}

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
WIDE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def same(found: Sequence[float], expected: Sequence[float]) -> bool:
    """Equal numbers, signs of zeros too; NaN equals NaN."""

    def key(number: float) -> tuple[str, float]:
        return ("nan", 0.0) if math.isnan(number) else (str(math.copysign(1.0, number)), number)

    return list(map(key, found)) == list(map(key, expected))


def every_pattern(dtype: torch.dtype) -> torch.Tensor:
    """All 65,536 numbers of a 16-bit type, NaNs and infinities too."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)


def around(points: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
    """The points that the type has, the neighbours of each in it, and all of them negated."""
    exact = torch.tensor([point for point in points if _has(dtype, point)], dtype=torch.float64).to(dtype)
    # nextafter knows no 16-bit types: step one unit in the last place through the bits.
    bits = exact.view(_BITS[dtype.itemsize])
    values = torch.cat([exact, (bits - 1).view(dtype), (bits + 1).view(dtype)])
    return torch.cat([values, -values])


def sweep(dtype: torch.dtype, step: int) -> Iterator[torch.Tensor]:
    """Every `step`-th bit pattern of float32 or float64, both signs, NaNs and subnormals among them."""
    width = 8 * dtype.itemsize
    yield torch.arange(-(1 << (width - 1)), (1 << (width - 1)) - 1, step, dtype=_BITS[dtype.itemsize]).view(dtype)


def _has(dtype: torch.dtype, point: float) -> bool:
    return torch.tensor(point, dtype=torch.float64).to(dtype).double().item() == point and point > 0
