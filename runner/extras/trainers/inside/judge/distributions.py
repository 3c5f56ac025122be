"""Inputs of several distributions, made from those of a reference's get_inputs.

What is assumed of an input is only what all draws show: its shape, its dtype, its range. Every distribution
is a function of the single elements. So it keeps what get_inputs may have built (symmetry, triangles, masks, order up
to a sign), and a kernel that relies on that structure stays right.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tasks.harness.shared.values import identity, map_tensors, tensors_of

ORIGINAL = "original"
#: Dtypes whose numbers are changed. Of others torch knows no least one, or single steps are all they have.
_RANGED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, kw_only=True)
class Range:
    """What all draws of one tensor show."""

    low: float
    high: float
    #: Whether all elements are 0 or 1.
    is_binary: bool
    #: Whether every draw was the same.
    is_fixed: bool


def copied(value: Any) -> Any:
    """The value with tensors of its own."""
    return map_tensors(value, lambda item: item.detach().clone(memory_format=torch.preserve_format))


def copied_arguments(args: list[Any]) -> list[Any]:
    """Arguments with memory of their own, in which they lie as before: strides, and what tensors share, are kept."""
    tensors = tensors_of(args)
    shared = len({identity(item) for item in tensors}) < len(tensors)
    if not shared and all(item.is_contiguous() for item in tensors):
        # Ten times as fast.
        copies: list[Any] = copied(args)
    else:
        memo: dict[int, Any] = {}
        copies = map_tensors(args, lambda item: copy.deepcopy(item.detach(), memo))
    return copies


def observe(draws: Sequence[Any]) -> list[Range | None]:
    """What several draws show of each tensor; None for those that are left alone: empty, or of other dtypes."""
    columns = zip(*(tensors_of(draw) for draw in draws), strict=False)
    return [_range_of(column) for column in columns]


def _range_of(column: Sequence[torch.Tensor]) -> Range | None:
    first = column[0]
    same_shape = all(item.shape == first.shape and item.dtype == first.dtype for item in column)
    if not same_shape or not first.numel() or first.dtype not in _RANGED:
        return None
    if not all(bool(item.isfinite().all()) for item in column):
        return None
    return Range(
        low=min(float(item.min()) for item in column),
        high=max(float(item.max()) for item in column),
        is_binary=all(bool(((item == 0) | (item == 1)).all()) for item in column),
        is_fixed=all(torch.equal(item, first) for item in column),
    )


def _base(seen: Range) -> float:
    """Zero, or the lower end where zero is not in the range."""
    return 0.0 if seen.low <= 0 <= seen.high else seen.low


def _scaled(item: torch.Tensor, seen: Range) -> torch.Tensor:
    """Everything a third as far from zero (or the lower end)."""
    base = _base(seen)
    return base + (item - base) * 0.3


def _skewed(item: torch.Tensor, seen: Range) -> torch.Tensor:
    """The same order and signs, but most of it near zero (or the lower end)."""
    base = _base(seen)
    span = max(seen.high - base, base - seen.low)
    return item if not span else base + ((item - base) / span) ** 3 * span


def _saturated(item: torch.Tensor, seen: Range) -> torch.Tensor:
    """The same order and signs, but most of it near the ends."""
    base = _base(seen)
    shifted = item - base
    least = torch.finfo(item.dtype).eps
    low, high = (shifted.new_tensor(max(span, least)) for span in (base - seen.low, seen.high - base))
    span = torch.where(shifted < 0, low, high)
    return base + shifted.sign() * (shifted.abs() / span) ** 0.25 * span


def _negated(item: torch.Tensor, seen: Range) -> torch.Tensor:
    """The other sign, where both occur: as far towards the other end."""
    if not seen.low < 0 < seen.high:
        return item
    return torch.where(item < 0, item * (seen.high / seen.low), item * (seen.low / seen.high))


def _mirrored(item: torch.Tensor, seen: Range) -> torch.Tensor:
    """Integers counted from the other end of their range."""
    return (int(seen.low) + int(seen.high)) - item


_FLOATS = {"scaled": _scaled, "skewed": _skewed, "saturated": _saturated, "negated": _negated}
_INTEGERS = {"mirrored": _mirrored}


def names_for(draws: Sequence[Any]) -> list[str]:
    """The distributions that change something of these inputs, `original` first."""
    seen = observe(draws)
    names = [ORIGINAL]
    for name in (*_FLOATS, *_INTEGERS):
        changed = transformed(draws[0], name, seen)
        pairs = zip(tensors_of(changed), tensors_of(draws[0]), strict=True)
        if any(one is not other and not torch.equal(one, other) for one, other in pairs):
            names.append(name)
    return names


def transformed(args: Any, name: str, seen: Sequence[Range | None]) -> Any:
    """Inputs of another distribution, of the same shapes, within the observed ranges.

    An element beyond a range becomes its end: a later draw may exceed all earlier ones.
    """
    if name == ORIGINAL:
        return args
    ranges = iter(seen)
    ranges_by_id = {id(item): own_range for item, own_range in zip(tensors_of(args), ranges, strict=False)}

    def change(item: torch.Tensor) -> torch.Tensor:
        own_range = ranges_by_id.get(id(item))
        if own_range is None or own_range.is_binary or own_range.is_fixed:
            return item
        table = _FLOATS if item.is_floating_point() else _INTEGERS
        function = table.get(name)
        if function is None or (not item.is_floating_point() and not own_range.low < own_range.high):
            return item
        plain = item.detach()
        low, high = (
            (own_range.low, own_range.high) if plain.is_floating_point() else (int(own_range.low), int(own_range.high))
        )
        # What is rounded may be beyond an end, by a step.
        return function(plain.clamp(low, high), own_range).to(plain.dtype).clamp(low, high)

    return map_tensors(args, change)
