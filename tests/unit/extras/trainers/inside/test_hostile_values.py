"""Every function that reads a worker's words gets every kind of value, and raises nothing but a Fault."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch

from runner.extras.trainers.inside.judge.compare import Tolerance, compare, kernelbench_allclose
from runner.extras.trainers.inside.judge.evaluation import _mutation
from runner.extras.trainers.inside.judge.moments import Draws
from runner.extras.trainers.inside.judge.prepare import Expected
from runner.extras.trainers.inside.judge.side import Constructed
from tests.support.hostile_values import DTYPED, VALUES, Refused, arrived, value_of

#: Of torch, about the values themselves.
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ("ComplexHalf", "torch.quantize")]

#: What references return: all that can be compared with itself, which the preparation demands.
_EXPECTED = [
    *DTYPED.values(),
    "x",
    "x * float('nan')",
    "x.to(torch.complex64).conj()",
    "torch.empty(0, 16)",
    "torch.tensor(1.0)",
    "1.5",
    "7",
    "None",
    "(x, [x, {'y': x}])",
    "{'out': x}",
    "[]",
]


@functools.cache
def _arrived() -> list[tuple[str, Any]]:
    """Name and value of all that comes through the wire."""
    found = []
    for name, text in VALUES.items():
        with contextlib.suppress(Refused):
            found.append((name, arrived(text)))
    return found


def _comparable(text: str) -> Any:  # noqa: ANN401 any value
    value = value_of(text)
    with contextlib.suppress(RuntimeError, TypeError):
        compare(value, value, Tolerance())
        kernelbench_allclose(value, value, Tolerance())
        return value
    return None


def test_what_can_be_judged_is_nearly_every_dtype() -> None:
    """Nothing below is tested with a handful of dtypes alone."""
    dtypes = [text for text in DTYPED.values() if _comparable(text) is not None]
    assert len(dtypes) >= len(DTYPED) - 1


@pytest.mark.parametrize("text", _EXPECTED)
def test_outputs_of_every_kind_are_compared(text: str) -> None:
    """With each of what references return; only the same is right."""
    expected = _comparable(text)
    for name, found in _arrived():
        says = kernelbench_allclose(expected, found, Tolerance())
        assert says in (True, False, None), name
        problem = compare(expected, found, Tolerance()).problem
        assert problem is None or problem.startswith("output"), name


@pytest.mark.parametrize("text", _EXPECTED)
def test_inputs_of_every_kind_are_given_back(text: str) -> None:
    """What a worker says that a call left of its inputs is compared with what was given."""
    given = _comparable(text)
    given = given if isinstance(given, torch.Tensor) else torch.ones(8, 16)
    expected = Expected(args=[given], output=None, after=[given.clone()])
    for name, found in _arrived():
        after = [found] if isinstance(found, torch.Tensor) else []
        problem = _mutation(expected, after, Tolerance())
        assert problem is None or "input" in problem, name
    assert _mutation(expected, [given.clone()], Tolerance()) is None


def test_draws_of_every_kind_are_compared() -> None:
    """Draws of a random candidate may be of any kind, and each of another one."""
    outputs = [torch.rand(8, 16) for _ in range(6)]
    draws = Draws()
    for output in outputs:
        draws.add(output)
    for name, found in _arrived():
        for problem in (draws.unlike([found] * 6), draws.unlike([*outputs[:5], found]), draws.implausible(found)):
            assert problem is None or isinstance(problem, str), name


@pytest.mark.parametrize(("name", "text"), VALUES.items())
def test_descriptions_of_every_kind_are_read(name: str, text: str) -> None:
    """A value at any place of a worker's description of its module is taken for none."""
    value = value_of(text)
    good = ["weight", [2, 3], "torch.float32"]
    texts, flags = isinstance(value, str), isinstance(value, bool)
    size, sizes = name in {"zero", "2 to 47"}, name == "an empty list"
    for answer, sound in (
        (value, False),
        ({"state": value, "lazy": False}, sizes),
        ({"state": [good], "lazy": value}, flags),
        ({"state": [good, value], "lazy": False}, False),
        ({"state": [[value, [2, 3], "torch.float32"]], "lazy": False}, texts),
        ({"state": [["weight", value, "torch.float32"]], "lazy": False}, sizes),
        ({"state": [["weight", [2, value], "torch.float32"]], "lazy": False}, size),
        ({"state": [["weight", [2, 3], value]], "lazy": False}, texts),
        ({"state": [good], "lazy": False, "more": value}, False),
        ({"state": [good]}, False),
        ({"lazy": False}, False),
    ):
        assert (Constructed.of(answer) is not None) is sound, (name, answer)
