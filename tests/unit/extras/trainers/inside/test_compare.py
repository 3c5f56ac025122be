"""The comparison of outputs: structure, dtypes, and a tolerance that knows the scale of what is expected."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from runner.extras.trainers.inside.judge.compare import Tolerance, compare, kernelbench_allclose

_DEFAULT = Tolerance()


def _right(expected: object, found: object, tolerance: Tolerance = _DEFAULT) -> bool:
    return compare(expected, found, tolerance).problem is None


_A, _B = torch.randn(64, 512), torch.randn(512, 64)
_ONE = torch.tensor(1e-3)
#: What is expected, what was found, whether that is right.
_CASES: Mapping[str, tuple[object, object, bool]] = {
    "sums in another order": (
        _A @ _B,
        sum((_A[:, i : i + 8] @ _B[i : i + 8] for i in range(0, 512, 8)), torch.zeros(64, 64)),
        True,
    ),
    "half precision behind float32": (_A @ _B, (_A.half() @ _B.half()).float(), False),
    "bfloat16 behind float32": (torch.sigmoid(_A), torch.sigmoid(_A.bfloat16()).float(), False),
    "sixteen bits": (torch.tanh(_A).half(), torch.tanh(_A.half()), True),
    "sixteen bits off by a tenth": (torch.tanh(_A).half(), torch.tanh(_A.half()) * 1.1, False),
    "one element, rounded": (_ONE, _ONE * (1 + 1e-5), True),
    "one element, off by its own size": (_ONE, torch.tensor(1.01e-3), False),
    "one element that is zero": (_ONE, torch.tensor(0.0), False),
    "rounding noise of cancelled inputs": (torch.zeros(100), torch.full((100,), 1e-7), True),
}


@pytest.mark.parametrize(("expected", "found", "right"), _CASES.values(), ids=_CASES)
def test_a_tolerance_knows_dtype_and_size(expected: object, found: object, *, right: bool) -> None:
    """Honest roundings pass, lower precision and other values do not."""
    assert _right(expected, found) == right


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5])
def test_zeros_and_constants_do_not_pass_for_small_numbers(scale: float) -> None:
    """Zeros and constants do not pass for small numbers."""
    expected = torch.randn(1000) * scale
    assert _right(expected, expected.clone())
    assert not _right(expected, torch.zeros(1000))
    assert not _right(expected + scale, torch.full((1000,), scale))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_roundings_to_float8_may_differ_by_a_step_and_not_all_of_them(dtype: torch.dtype) -> None:
    """Sums that differ by what low dtypes may, rounded; but neither a step everywhere nor a factor."""
    sums = torch.randn(64, 512) @ torch.randn(512, 64) / 512**0.5
    expected = sums.to(dtype)
    assert _right(expected, (sums * (1 + 5e-3 * torch.randn_like(sums))).to(dtype))
    step = torch.finfo(dtype).eps
    upwards = (expected.float() * (1 + step)).to(dtype)
    assert not _right(expected, upwards)
    assert not _right(expected, (sums * (1 + step / 2)).to(dtype))
    # Who states a tolerance has that and no other.
    assert _right(expected, upwards, Tolerance(rtol=0.5, atol=0.01))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (torch.ones(2, 3), torch.ones(3, 2)),
        (torch.ones(2, 3), torch.ones(6)),
        (torch.ones(2), torch.ones(2).double()),
        (torch.ones(2), torch.ones(2, dtype=torch.int64)),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2),)),
        ((torch.ones(2),), [torch.ones(2)]),
        ((torch.ones(2),), torch.ones(2)),
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}),
        ({"a": torch.ones(2)}, torch.ones(2)),
        (torch.ones(2), None),
        (3, 4),
        (True, 1),
        ("a", "b"),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor([1.0, float("inf")]), torch.tensor([1.0, float("-inf")])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])),
    ],
)
def test_what_differs_in_kind_is_wrong(expected: object, found: object) -> None:
    """What differs in kind is wrong."""
    problem = compare(expected, found, _DEFAULT).problem
    assert problem is not None
    assert problem.startswith("output")


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, float("inf"), float("-inf"), float("nan")]),
        (torch.ones(2), [torch.zeros(1), {"k": torch.tensor([3])}]),
        torch.empty(0, 4),
        torch.randn(4, dtype=torch.complex64),
        None,
        1.5,
    ],
)
def test_what_is_equal_is_right(value: object) -> None:
    """What is equal is right."""
    assert _right(value, value)


_NUMBERS = (0.0, 1e-9, 1e-6, 1.0, 1.0003, 1.001, -1.0, 3e8, float("inf"), float("-inf"), float("nan"))


@pytest.mark.parametrize("found", _NUMBERS)
@pytest.mark.parametrize("expected", _NUMBERS)
def test_a_number_is_right_where_a_tensor_of_it_is(expected: float, found: float) -> None:
    """Whichever of the two a module returns; of an infinity only itself is right."""
    assert _right(expected, found) == _right(torch.tensor(expected), torch.tensor(found))
    assert _right(expected, found) or expected != found


def test_errors_are_told() -> None:
    """Errors are told."""
    found = compare(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.5, 4.0]), _DEFAULT)
    assert found.max_abs_error == pytest.approx(0.5)
    assert found.problem is not None
    assert "1 of 3 elements" in found.problem


@pytest.mark.parametrize("size", [5, 1000])
def test_outputs_are_compared_in_parts_as_in_one(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spread, errors and the place of the largest are those of the whole; huge numbers are numbers, too."""
    expected = torch.randn(size, dtype=torch.float64) * torch.rand(size, dtype=torch.float64) + 3
    expected[2] = float("inf")
    for found in (expected.clone(), expected + 1e-6, expected * 1.01, expected * 1e200):
        whole = compare(expected, found, _DEFAULT)
        with monkeypatch.context() as patch:
            patch.setattr("runner.extras.trainers.inside.judge.compare._AT_ONCE", 3)
            parts = compare(expected, found, _DEFAULT)
            assert compare(found * 1e300, found * 1e300, _DEFAULT).problem is None
        assert (parts.problem, parts.max_abs_error) == (whole.problem, whole.max_abs_error)
        assert parts.max_rel_error == pytest.approx(whole.max_rel_error, rel=1e-9)


def test_asked_tolerances_count() -> None:
    """Asked tolerances count."""
    assert _right(torch.tensor([1.0, 2.0]), torch.tensor([1.05, 2.0]), Tolerance(rtol=0.1, atol=0.0))
    assert not _right(torch.tensor([1.0, 2.0]), torch.tensor([1.05, 2.0]), Tolerance(rtol=0.01, atol=0.0))


def test_kernelbench_says_what_allclose_says() -> None:
    """Kernelbench says what allclose says."""
    zeros = torch.zeros(10)
    assert kernelbench_allclose(torch.full((10,), 1e-5), zeros, _DEFAULT)
    assert not kernelbench_allclose(torch.ones(10), zeros, _DEFAULT)
    assert not kernelbench_allclose(torch.ones(10), torch.ones(5), _DEFAULT)
    assert kernelbench_allclose((zeros,), (zeros,), _DEFAULT) is None
