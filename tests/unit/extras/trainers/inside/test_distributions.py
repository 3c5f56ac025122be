"""Inputs of other distributions keep what get_inputs built: shape, dtype, range, zeros, symmetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from runner.extras.trainers.inside.judge.distributions import copied, names_for, observe, transformed


def _changed(draws: list[list[torch.Tensor]], name: str) -> torch.Tensor:
    found: torch.Tensor = transformed(draws[0], name, observe(draws))[0]
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [
        torch.rand,
        torch.randn,
        lambda n: torch.rand(n) + 3,
        lambda n: -torch.rand(n),
        lambda n: 6 * torch.rand(n) - 1,
        lambda n: torch.randn(n).clamp(-4, 0.25),
        lambda n: torch.randn(n).clamp(0, 2),
    ],
)
def test_all_stay_in_the_observed_range(make: Callable[[int], torch.Tensor], dtype: torch.dtype) -> None:
    """Also where one end is further from zero than the other; up to rounding."""
    draws = [[make(1000).to(dtype)] for _ in range(3)]
    low = min(float(draw[0].min()) for draw in draws)
    high = max(float(draw[0].max()) for draw in draws)
    for name in names_for(draws):
        found = _changed(draws, name)
        assert found.shape == (1000,)
        room = 4 * torch.finfo(dtype).eps * max(abs(low), abs(high))
        assert low - room <= float(found.min())
        assert float(found.max()) <= high + room
        assert bool((found * draws[0][0] >= 0).all()) == (name != "negated" or not low < 0 < high)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "make",
    [
        torch.rand,
        lambda n: torch.rand(n).bfloat16(),
        lambda n: 2 * torch.rand(n) - 1,
        lambda n: torch.rand(n) + 3,
        lambda n: torch.rand(n).clamp(0.5, 1.0),
        lambda n: torch.randn(n).softmax(0),
        lambda n: torch.randint(0, 1000, (n,)),
        lambda n: torch.randint(-5, 5, (n,), dtype=torch.int32),
    ],
)
def test_no_draw_leaves_what_draws_show(make: Callable[[int], torch.Tensor], size: int) -> None:
    """Nor does a later one that goes further than those before it."""
    first = [[make(size)] for _ in range(3)]
    ranges = observe(first)
    low = min(draw[0].min() for draw in first)
    high = max(draw[0].max() for draw in first)
    for name in ("scaled", "skewed", "saturated", "negated", "mirrored"):
        for later in [draw[0] for draw in first] + [make(size) for _ in range(50)]:
            changed = transformed([later], name, ranges)[0]
            assert changed.dtype == later.dtype
            if not torch.equal(changed, later):
                assert bool(((changed >= low) & (changed <= high)).all()), (name, later, changed)


def test_structure_is_kept() -> None:
    """Structure is kept."""
    triangle = [[torch.randn(16, 16).tril()] for _ in range(3)]
    symmetric = [[(a := torch.randn(16, 16)) + a.T] for _ in range(3)]
    for name in names_for(triangle):
        assert torch.equal(_changed(triangle, name).triu(1), torch.zeros(16, 16))
    for name in names_for(symmetric):
        found = _changed(symmetric, name)
        assert torch.equal(found, found.T)


def test_bounds_of_integers_are_kept() -> None:
    """Bounds of integers are kept."""
    draws = [[torch.randint(2, 10, (500,))] for _ in range(3)]
    assert names_for(draws) == ["original", "mirrored"]
    found = _changed(draws, "mirrored")
    assert found.dtype == torch.int64
    assert int(found.min()) >= 2
    assert int(found.max()) <= 9


@pytest.mark.parametrize(
    "value",
    [torch.ones(5), torch.arange(5), torch.tensor([True, False]), (torch.rand(9) > 0.5).float(), torch.empty(0)],
)
def test_masks_and_tables_are_left_alone(value: torch.Tensor) -> None:
    """Masks and tables are left alone."""
    assert names_for([[value], [value]]) == ["original"]


def test_numbers_and_containers_pass_through() -> None:
    """Numbers and containers pass through."""
    draws: list[list[Any]] = [[{"a": torch.rand(4)}, 3, (torch.rand(4), None)] for _ in range(2)]
    found = transformed(draws[0], "skewed", observe(draws))
    assert (found[1], found[2][1]) == (3, None)
    assert not torch.equal(found[0]["a"], draws[0][0]["a"])


def test_a_tensor_that_is_there_twice_stays_one() -> None:
    """A tensor that is there twice stays one."""
    x = torch.rand(3)
    a, b = copied([x, x])
    assert a is b
    assert a is not x
