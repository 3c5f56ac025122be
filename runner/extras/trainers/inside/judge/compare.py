"""Whether a module's output is right: structure, shapes and dtypes, then numbers, with a tolerance that knows scale.

For floating numbers: |a - b| <= atol * 3 * min(1, s) + rtol * |a| + floor, where a is expected and s is the standard
deviation of what is expected in that tensor. So zeros do not pass for a tensor of small numbers, and sums in another
order pass. The floor, at most four steps of float32 (or of float64) at 1, is for outputs that are rounding noise of
larger inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

#: The part of the tolerance that grows with the spread of the output. Chosen with sums in other orders (they pass) and
#: outputs of zeros and of constants (they do not), in float32.
_SPREADS = 3.0
_FLOOR_STEPS = 4.0
_LOW = (torch.float16, torch.bfloat16)
#: atol and rtol by the width of the dtype.
DEFAULT_TOLERANCE = 1e-4
LOW_TOLERANCE = 1e-2
#: Elements that are compared at once: in double they and what is worked out from them take some 50 bytes each.
_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """atol and rtol; None: by the dtype of each tensor."""

    rtol: float | None = None
    atol: float | None = None
    #: The floor, where it is less than usual.
    floor: float = math.inf

    def floor_of(self, dtype: torch.dtype) -> float:
        """The floor of a tensor of this dtype."""
        step = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        return min(_FLOOR_STEPS * step, self.floor)

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """Rtol and atol of a tensor of this dtype."""
        rtol, atol = default_tolerance(dtype)
        return (rtol if self.rtol is None else self.rtol), (atol if self.atol is None else self.atol)


@dataclass(kw_only=True)
class Comparison:
    """What comparing an output came to."""

    #: Why it is wrong, as a sentence; None: it is right.
    problem: str | None = None
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0


def default_tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """The default for outputs of a dtype, relative and absolute.

    Two right sums may lie on both sides of a midpoint, so that their roundings to float8 differ by a step of it: a
    quarter of the value in e5m2. Few elements do so: on average, roundings differ by what the sums do, which
    `_drift` holds against the tolerance of other low dtypes.
    """
    if dtype.is_floating_point and dtype.itemsize == 1:
        step = torch.finfo(dtype).eps
        # Of powers of two a step is the number itself.
        return max(LOW_TOLERANCE, step if step < 1 else 0.0), LOW_TOLERANCE
    both = LOW_TOLERANCE if dtype in _LOW or dtype.itemsize == 1 else DEFAULT_TOLERANCE
    return both, both


def compare(expected: object, output: object, tolerance: Tolerance) -> Comparison:
    """Compare an output with what is expected."""
    result = Comparison()
    result.problem = _compare(expected, output, "output", tolerance, result)
    return result


def _compare(want: Any, have: Any, place: str, tolerance: Tolerance, result: Comparison) -> str | None:
    """Why a part of the output is wrong."""
    keys = _keys(want)
    if keys != _keys(have):
        return f"{place} is {_shape(have)}, expected {_shape(want)}"
    if keys is None:
        return _compare_leaf(want, have, place, tolerance, result)
    parts = ((key, want[key], have[key]) for key in (want if isinstance(want, Mapping) else range(len(want))))
    problems = (_compare(one, other, f"{place}[{key!r}]", tolerance, result) for key, one, other in parts)
    return next((problem for problem in problems if problem is not None), None)


def _keys(value: object) -> object:
    """What two containers must have alike; None: it is none."""
    if isinstance(value, Mapping):
        return frozenset(value)
    return (_kind(value), len(value)) if isinstance(value, (tuple, list)) else None


def kernelbench_allclose(expected: object, output: object, tolerance: Tolerance) -> bool | None:
    """What KernelBench's comparison says; None for outputs that are not one tensor, which it cannot compare."""
    if not isinstance(expected, torch.Tensor):
        return None
    if not isinstance(output, torch.Tensor) or kind_of(expected) != kind_of(output):
        return False
    rtol, atol = tolerance.of(expected.dtype)
    if expected.dtype == torch.bool:
        return bool(torch.equal(expected, output))
    pairs = zip(_parts(expected), _parts(output), strict=True)
    return all(torch.allclose(_wide(one), _wide(other), rtol=rtol, atol=atol) for one, other in pairs)


def _parts(item: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Its elements, so many at once."""
    parts: tuple[torch.Tensor, ...] = torch.split(item.reshape(-1), _AT_ONCE)
    return parts


def _wide(item: torch.Tensor) -> torch.Tensor:
    """The same numbers in a dtype that torch compares: of some it knows no allclose."""
    return item.to(torch.complex128) if item.is_complex() else item.double()


def kind_of(item: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    """What two tensors must have alike before their numbers can be compared."""
    return item.shape, item.dtype, item.device


def _kind(value: object) -> str:
    return "tuple" if isinstance(value, tuple) else "list"


def _shape(value: object) -> str:
    """A value's structure, for a sentence."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return f"a {_kind(value)} of {len(value)}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(sorted(map(str, value)))[:200] or 'none'}"
    return f"{type(value).__name__} {str(value)[:80]}" if value is not None else "None"


def _compare_leaf(want: Any, have: Any, place: str, tolerance: Tolerance, result: Comparison) -> str | None:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return _compare_plain(want, have, place, tolerance)
    if want.device != have.device:
        return f"{place} is on {have.device}, expected on {want.device}"
    if kind_of(want) != kind_of(have):
        return f"{place} is {_shape(have)}, expected {_shape(want)}"
    if not want.numel():
        return None
    if not (want.is_floating_point() or want.is_complex()):
        # Not by !=, which lacks some dtypes on some devices.
        wrong = sum(
            int((one.long() != other.long()).sum()) for one, other in zip(_parts(want), _parts(have), strict=True)
        )
        return None if not wrong else f"{place}: {wrong} of {want.numel()} elements differ, expected equal ones"
    return _compare_numbers(as_real(want), as_real(have), place, tolerance, result)


def as_real(item: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones."""
    return torch.view_as_real(item.resolve_conj()) if item.is_complex() else item


def _compare_plain(want: object, have: object, place: str, tolerance: Tolerance) -> str | None:
    if type(want) is float and type(have) is float:
        rtol, atol = tolerance.of(torch.float32)
        allowed = atol * _SPREADS * min(1.0, abs(want)) + rtol * abs(want) + tolerance.floor_of(torch.float32)
        good = want == have or (math.isnan(want) and math.isnan(have))
        # Of an infinity the tolerance would be infinite, too.
        good = good or (math.isfinite(want) and abs(want - have) <= allowed)
    else:
        good = type(want) is type(have) and want == have
    return None if good else f"{place} is {_shape(have)}, expected {_shape(want)}"


def _compare_numbers(
    want: torch.Tensor, have: torch.Tensor, place: str, tolerance: Tolerance, result: Comparison
) -> str | None:
    rtol, atol = tolerance.of(want.dtype)
    floor = tolerance.floor_of(want.dtype)
    spread, unlike = _spread(want, have)
    if unlike:
        return (
            f"{place}: {unlike} of {want.numel()} elements are finite on one side alone, or another kind of not finite"
        )
    # How far beyond its tolerance an element is, what was expected there and what was found.
    worst = (-math.inf, 0.0, 0.0)
    count = 0
    largest = total_error = total_size = 0.0
    for one, other in _pairs_at_once(want, have):
        finite = one.isfinite()
        if not bool(finite.all()):
            one, other = one[finite], other[finite]  # noqa: PLW2901 what counts of them
            if not one.numel():
                continue
        error, size = (one - other).abs(), one.abs()
        total_error, total_size = total_error + float(error.sum()), total_size + float(size.sum())
        largest = max(largest, float(error.max()))
        relative = error / size.clamp(min=max(spread, 1e-30))
        result.max_rel_error = max(result.max_rel_error, float(relative.max()))
        beyond = error - (atol * _SPREADS * min(1.0, spread) + rtol * size + floor)
        count += int((beyond > 0).sum())
        index = int(beyond.argmax())
        if float(beyond[index]) > worst[0]:
            worst = float(beyond[index]), float(one[index]), float(other[index])
    result.max_abs_error = max(result.max_abs_error, largest)
    if not count:
        means = (total_error / want.numel(), total_size / want.numel())
        return None if tolerance.rtol is not None else _drift(want.dtype, place, means, spread)
    return (
        f"{place}: {count} of {want.numel()} elements differ by more than the tolerance "
        f"(largest error {largest:.3g}, there {worst[2]:.6g} where {worst[1]:.6g} is expected)"
    )


def _drift(dtype: torch.dtype, place: str, means: tuple[float, float], spread: float) -> str | None:
    """Why elements that are all within a step of float8 are wrong together. `means`: of the errors and of the sizes."""
    error, size = means
    allowed = LOW_TOLERANCE * (_SPREADS * min(1.0, spread) + size)
    if dtype.itemsize > 1 or error <= allowed:
        return None
    return (
        f"{place}: elements differ by {error:.3g} on average, expected at most {allowed:.3g}: more than roundings of "
        "right sums do"
    )


def _spread(want: torch.Tensor, have: torch.Tensor) -> tuple[float, int]:
    """The standard deviation of what is finite in the first, and how many elements are not finite in unlike ways."""
    unlike = 0
    count, mean, squares, largest = 0, 0.0, 0.0, 0.0
    for one, other in _pairs_at_once(want, have):
        finite = one.isfinite()
        if not bool(finite.all()) or not bool(other.isfinite().all()):
            same = (one == other) | (one.isnan() & other.isnan())
            unlike += int(((finite != other.isfinite()) | (~finite & ~same)).sum())
            one = one[finite]  # noqa: PLW2901 what counts of it
        if not one.numel():
            continue
        # The parts' means and deviations make those of the whole.
        variance, own = (float(value) for value in torch.var_mean(one, correction=0))
        total = count + one.numel()
        gap = own - mean
        # Not by **, which raises where a product is infinite.
        squares += one.numel() * variance + (gap * gap * count * one.numel() / total if count else 0.0)
        mean += gap * one.numel() / total
        count, largest = total, max(largest, float(one.abs().max()))
    return (math.sqrt(squares / count) if count > 1 else largest), unlike


def in_double(item: torch.Tensor) -> Iterator[torch.Tensor]:
    """Its numbers in parts, in a dtype that torch computes in: for some it has no comparison, for some no isfinite."""
    return (part.double() for part in _parts(as_real(item)))


def _pairs_at_once(want: torch.Tensor, have: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both in parts, in double: a whole output in double, and what is worked out from it, takes ten times its bytes."""
    yield from zip(in_double(want), in_double(have), strict=True)
