"""Comparing outputs with a reference; a file of every task here (`{"name": "utils.py", "source": "../utils.py"}`).

Self-contained. Compares piece by piece, so that a check needs little memory beside the tensors themselves.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

#: Elements compared at a time.
_PIECE = 1 << 24
_MAX_SHOWN = 5
#: Two numbers to a byte, which torch neither compares nor converts.
_PACKED = getattr(torch, "float4_e2m1fn_x2", None)

#: The data that a task's generate_input makes.
Data = TypeVar("Data")


def verbose_allclose(
    received: torch.Tensor, expected: torch.Tensor, *, rtol: float = 1e-5, atol: float = 1e-8, shown: int = _MAX_SHOWN
) -> list[str]:
    """Where two tensors differ by more than `atol + rtol * |expected|`; NaN equals NaN, infinities themselves.

    Args:
        received: what a submission returned.
        expected: what the reference returned; shape, dtype and device must be the same.
        rtol: relative tolerance.
        atol: absolute tolerance.
        shown: how many elements to list.

    Returns:
        Lines for the author; none if all is well.
    """
    kind = _kind_mismatch(received, expected)
    if kind is not None:
        return [kind]
    if _same_bits(received, expected):
        # The common case, and some fifty times as fast as tolerances are; every timed call is checked.
        return []
    if expected.dtype is _PACKED:
        return verbose_allequal(received, expected, shown=shown)
    wide = torch.float32 if expected.dtype in (torch.float16, torch.bfloat16) else torch.float64
    if expected.is_complex():
        wide = torch.complex128

    def differ(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
        return ~torch.isclose(got.to(wide), want.to(wide), rtol=rtol, atol=atol, equal_nan=True)

    lines = _report(received, expected, differ, shown)
    return [*lines, f"tolerance: {atol:g} + {rtol:g} * |expected|"] if lines else []


def verbose_allequal(received: torch.Tensor, expected: torch.Tensor, *, shown: int = _MAX_SHOWN) -> list[str]:
    """Where two tensors are not equal; for integers and other exact outputs. Arguments as in `verbose_allclose`."""
    kind = _kind_mismatch(received, expected)
    if kind is not None:
        return [kind]
    if expected.dtype is _PACKED:
        received, expected = received.view(torch.uint8), expected.view(torch.uint8)
    return _report(received, expected, torch.ne, shown)


def make_match_reference(
    reference: Callable[[Data], object], *, rtol: float | Sequence[float] = 1e-5, atol: float | Sequence[float] = 1e-8
) -> Callable[[Data, object], tuple[bool, str]]:
    """A `check_implementation` that runs the reference on the same data and compares.

    Args:
        reference: takes the data of generate_input; returns a tensor or a sequence of tensors.
        rtol: relative tolerance, for floating-point and complex outputs; one for all, or one for each output.
        atol: absolute tolerance, likewise.

    Returns:
        A function of data and output that returns whether they match, and why not.

    Raises:
        ValueError: a tolerance is no finite number, or below 0.
    """
    _require_tolerances("rtol", rtol)
    _require_tolerances("atol", atol)

    def check(data: Data, output: object) -> tuple[bool, str]:
        lines = _compare(output, reference(data), rtol, atol)
        return not lines, "; ".join(lines)

    return check


def _require_tolerances(name: str, value: object) -> None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            _require_tolerances(name, each)
    elif isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name}: found {value!r}, expected a finite number of at least 0, or one for each output")


def _compare(
    received: object, expected: object, rtol: float | Sequence[float], atol: float | Sequence[float]
) -> list[str]:
    if isinstance(expected, torch.Tensor):
        if isinstance(rtol, Sequence) or isinstance(atol, Sequence):
            raise TypeError(
                "the reference returned a tensor, expected a sequence: there is a tolerance for each output"
            )
        if not isinstance(received, torch.Tensor):
            return [f"found {type(received).__name__}, expected a tensor"]
        if expected.is_floating_point() or expected.is_complex():
            return verbose_allclose(received, expected, rtol=rtol, atol=atol)
        return verbose_allequal(received, expected)
    if not isinstance(expected, Sequence) or isinstance(expected, str):
        raise TypeError(f"the reference returned {type(expected).__name__}, expected a tensor or a sequence of tensors")
    if not isinstance(received, Sequence) or len(received) != len(expected):
        return [f"found {type(received).__name__}, expected {len(expected)} tensors"]
    tolerances = [each if isinstance(each, Sequence) else [each] * len(expected) for each in (rtol, atol)]
    for name, each in zip(("rtol", "atol"), tolerances, strict=True):
        if len(each) != len(expected):
            raise TypeError(f"{name}: found {len(each)} tolerances, expected one, or {len(expected)}, one per output")
    faults = [_compare(*each) for each in zip(received, expected, *tolerances, strict=True)]
    return [f"output {index}: {'; '.join(lines)}" for index, lines in enumerate(faults) if lines]


def _kind_mismatch(received: torch.Tensor, expected: torch.Tensor) -> str | None:
    for name in ("shape", "dtype", "device"):
        own, required = getattr(received, name), getattr(expected, name)
        if own != required:
            shown = (tuple(own), tuple(required)) if name == "shape" else (own, required)
            return f"{name}: found {shown[0]}, expected {shown[1]}"
    return None


def _same_bits(received: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether both hold the same bytes, as far as that can be seen without a copy; shapes and dtypes are equal."""
    pair = (received, expected)
    if not all(each.is_contiguous() and not each.is_conj() and not each.is_neg() for each in pair):
        return False
    one, other = (each.detach().reshape(-1).view(torch.uint8) for each in pair)
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in (one, other)):
        # Seven times as fast as single bytes.
        one, other = one.view(torch.int64), other.view(torch.int64)
    return torch.equal(one, other)


def _report(
    received: torch.Tensor,
    expected: torch.Tensor,
    differ: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    shown: int,
) -> list[str]:
    count = 0
    lines: list[str] = []
    for start, got, want in _pieces(received, expected):
        places = torch.nonzero(differ(got, want)).flatten()
        count += places.numel()
        for place in places[: shown - len(lines)].tolist():
            index = _unravel(start + place, expected.shape)
            lines.append(f"at {index}: found {got[place].item()}, expected {want[place].item()}")
    return [f"{count} of {expected.numel()} elements differ", *lines] if count else []


def _pieces(received: torch.Tensor, expected: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    got, want = received.reshape(-1), expected.reshape(-1)
    for start in range(0, want.numel(), _PIECE):
        yield start, got[start : start + _PIECE], want[start : start + _PIECE]


def _unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
