"""Whether a module's output is right: structure, shapes and dtypes, then numbers, with a tolerance that knows scale.

For floating numbers: |a - b| <= atol * 3 * min(1, s) + rtol * |a| + floor, where a is expected and s is the standard
deviation of what is expected in that tensor. So zeros do not pass for a tensor of small numbers, and sums in another
order pass. The floor, four steps of float32 (or of float64) at 1, is for outputs that are rounding noise of larger
inputs.
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
DEFAULT_TOLERANCE, LOW_TOLERANCE = 1e-4, 1e-2


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """atol and rtol; None: by the dtype of each tensor."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """rtol and atol of a tensor of this dtype."""
        default = default_tolerance(dtype)
        return (default if self.rtol is None else self.rtol), (default if self.atol is None else self.atol)


@dataclass(kw_only=True)
class Comparison:
    """What comparing an output came to."""

    #: Why it is wrong, as a sentence; None: it is right.
    problem: str | None = None
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0


def default_tolerance(dtype: torch.dtype) -> float:
    """The default for outputs of a dtype, absolute and relative."""
    return LOW_TOLERANCE if dtype in _LOW or dtype.itemsize == 1 else DEFAULT_TOLERANCE


def compare(expected: object, found: object, tolerance: Tolerance) -> Comparison:
    """Compare an output with what is expected."""
    result = Comparison()
    for place, want, have in _pairs(expected, found, "output"):
        if isinstance(want, str) and isinstance(have, _Differs):
            result.problem = want
            return result
        problem = _compare_leaf(want, have, place, tolerance, result)
        if problem is not None:
            result.problem = problem
            return result
    return result


def kernelbench_allclose(expected: object, found: object, tolerance: Tolerance) -> bool | None:
    """What KernelBench's comparison says; None for outputs that are not one tensor, which it cannot compare."""
    if not isinstance(expected, torch.Tensor):
        return None
    if not isinstance(found, torch.Tensor) or expected.shape != found.shape:
        return False
    rtol, atol = tolerance.of(expected.dtype)
    if torch.bool in {expected.dtype, found.dtype}:
        return bool(torch.equal(expected, found))
    wide = torch.promote_types(expected.dtype, found.dtype)
    return bool(torch.allclose(expected.to(wide), found.to(wide), atol=atol, rtol=rtol))


class _Differs:
    """Stands for the found part where structures differ; the expected part is then a sentence."""


def _pairs(expected: Any, found: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves of both, side by side; where they differ in structure, a sentence and `_Differs`."""
    if isinstance(expected, (tuple, list)) or isinstance(found, (tuple, list)):
        same_kind = _kind(expected) == _kind(found)
        if not same_kind or len(expected) != len(found):
            yield place, f"{place} is {_shape(found)}, expected {_shape(expected)}", _Differs()
            return
        for index, (want, have) in enumerate(zip(expected, found, strict=True)):
            yield from _pairs(want, have, f"{place}[{index}]")
    elif isinstance(expected, Mapping) or isinstance(found, Mapping):
        if not isinstance(expected, Mapping) or not isinstance(found, Mapping) or set(expected) != set(found):
            yield place, f"{place} is {_shape(found)}, expected {_shape(expected)}", _Differs()
            return
        for key in expected:
            yield from _pairs(expected[key], found[key], f"{place}[{key!r}]")
    else:
        yield place, expected, found


def _kind(value: object) -> str:
    return "tuple" if isinstance(value, tuple) else "list" if isinstance(value, list) else "other"


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
    if want.shape != have.shape or want.dtype != have.dtype:
        return f"{place} is {_shape(have)}, expected {_shape(want)}"
    if not want.numel():
        return None
    if not (want.is_floating_point() or want.is_complex()):
        wrong = int((want != have).sum())
        return None if not wrong else f"{place}: {wrong} of {want.numel()} elements differ, expected equal ones"
    if want.is_complex():
        want, have = torch.view_as_real(want.resolve_conj()), torch.view_as_real(have.resolve_conj())
    return _compare_numbers(want, have, place, tolerance, result)


def _compare_plain(want: object, have: object, place: str, tolerance: Tolerance) -> str | None:
    if type(want) is float and type(have) is float:
        rtol, atol = tolerance.of(torch.float32)
        good = want == have or (math.isnan(want) and math.isnan(have))
        good = good or abs(want - have) <= atol * min(1, abs(want)) + rtol * abs(want)
    else:
        good = type(want) is type(have) and want == have
    return None if good else f"{place} is {_shape(have)}, expected {_shape(want)}"


def _compare_numbers(
    want: torch.Tensor, have: torch.Tensor, place: str, tolerance: Tolerance, result: Comparison
) -> str | None:
    rtol, atol = tolerance.of(want.dtype)
    step = torch.finfo(torch.float64 if want.dtype == torch.float64 else torch.float32).eps
    want, have = want.double(), have.double()
    finite = want.isfinite()
    unlike = (finite != have.isfinite()) | (~finite & ~((want == have) | (want.isnan() & have.isnan())))
    if bool(unlike.any()):
        count = int(unlike.sum())
        return (
            f"{place}: {count} of {want.numel()} elements are finite on one side alone, or another kind of not finite"
        )
    if not bool(finite.all()):
        want, have = want[finite], have[finite]
    if not want.numel():
        return None
    error = (want - have).abs()
    size = want.abs()
    spread = float(want.std(correction=0)) if want.numel() > 1 else float(size.max())
    allowed = atol * _SPREADS * min(1.0, spread) + rtol * size + _FLOOR_STEPS * step
    result.max_abs_error = max(result.max_abs_error, float(error.max()))
    result.max_rel_error = max(result.max_rel_error, float((error / size.clamp(min=max(spread, 1e-30))).max()))
    wrong = error > allowed
    count = int(wrong.sum())
    if not count:
        return None
    worst = int((error - allowed).argmax())
    return (
        f"{place}: {count} of {want.numel()} elements differ by more than the tolerance "
        f"(largest error {float(error.max()):.3g}, there {float(have.flatten()[worst]):.6g} "
        f"where {float(want.flatten()[worst]):.6g} is expected)"
    )
