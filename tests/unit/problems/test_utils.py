"""What a submission is told by tasks/problems/utils.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tasks.harness.shared.values import DTYPES
from tasks.problems.utils import make_match_reference, verbose_allclose


def test_each_of_several_outputs_is_named_once() -> None:
    """Which output, how many elements, the first of them; outputs that are right are not mentioned."""
    check = make_match_reference(lambda data: [data, data, data])
    right = torch.arange(6.0).reshape(2, 3)
    first, last = right.clone(), right.clone()
    first[0, 1] = 5
    last[1] = 0
    assert check(right, [first, right, last]) == (
        False,
        (
            "output 0: 1 of 6 elements differ; at (0, 1): found 5.0, expected 1.0; "
            "tolerance: 1e-08 + 1e-05 * |expected|; "
            "output 2: 3 of 6 elements differ; at (1, 0): found 0.0, expected 3.0; at (1, 1): found 0.0, expected 4.0; "
            "at (1, 2): found 0.0, expected 5.0; tolerance: 1e-08 + 1e-05 * |expected|"
        ),
    )
    assert check(right, [right, right[:1], right]) == (False, "output 1: shape: found (1, 3), expected (2, 3)")
    assert check(right, [right, right]) == (False, "found list, expected 3 tensors")


def test_each_output_may_have_its_own_tolerance() -> None:
    """And one that is left out, or stands for all, is the same for each."""
    check = make_match_reference(lambda data: [data, data], rtol=0, atol=(0.0, 0.1))
    right = torch.ones(3)
    assert check(right, [right, right + 0.05]) == (True, "")
    assert check(right, [right + 0.05, right])[1].startswith("output 0: 3 of 3 elements differ")
    assert check(right, [right, right + 0.2])[1].startswith("output 1: 3 of 3 elements differ")


@pytest.mark.parametrize("value", ["1e-5", None, True, -1e-5, math.nan, math.inf, torch.ones(2), (1e-5, "0.1"), [[-1]]])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_is_a_number(name: str, value: object) -> None:
    """The import of the task says so, not the first output that differs."""
    with pytest.raises(ValueError, match=f"^{name}: found .*, expected a finite number of at least 0"):
        make_match_reference(lambda data: data, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [0, 1, 0.5, np.float32(0.5), np.int64(1), (0.5, (1, 2))])
def test_any_kind_of_number_is_a_tolerance(number: object) -> None:
    """Alone, or one for each of outputs that may be nested."""
    right = (torch.ones(3), (torch.ones(3), torch.ones(3)))
    assert make_match_reference(lambda _: right, rtol=number)(None, right) == (True, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reference", "tolerance", "message"),
    [
        (torch.ones(3), (0, 0), "the reference returned a tensor, expected a sequence"),
        ([torch.ones(3)], (0, 0), "rtol: found 2 tolerances, expected one, or 1, one per output"),
        ([torch.ones(3)] * 3, (0, 0), "rtol: found 2 tolerances, expected one, or 3, one per output"),
        ("right", 0, "the reference returned str, expected a tensor or a sequence of tensors"),
        (["right"], 0, "the reference returned str, expected a tensor or a sequence of tensors"),
        ({"right": torch.ones(3)}, 0, "the reference returned dict, expected a tensor or a sequence of tensors"),
        (None, 0, "the reference returned NoneType, expected a tensor or a sequence of tensors"),
    ],
)
def test_a_reference_that_cannot_be_compared_is_named(reference: object, tolerance: object, message: str) -> None:
    """What it returned, or how many tolerances do not fit it."""
    check = make_match_reference(lambda _: reference, rtol=tolerance)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"^{message}"):
        check(None, reference)


def test_a_few_elements_stand_for_all() -> None:
    """However many differ. Zeros of both signs are equal, and so is a tensor whose conjugation has been put off."""
    lines = verbose_allclose(torch.zeros(100), torch.ones(100), shown=2)
    assert lines == [
        "100 of 100 elements differ",
        "at (0,): found 0.0, expected 1.0",
        "at (1,): found 0.0, expected 1.0",
        "tolerance: 1e-08 + 1e-05 * |expected|",
    ]
    assert verbose_allclose(torch.tensor([-0.0, 1.0]), torch.tensor([0.0, 1.0])) == []
    number = torch.tensor([1 + 2j])
    assert verbose_allclose(number.conj(), torch.tensor([1 - 2j])) == []
    assert verbose_allclose(number.conj(), number) != []


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.float16, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(3, 7), (4, 16)])
def test_the_same_bytes_are_equal_and_no_others(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Of every type, as a part that begins anywhere, and as a view that is not in order."""
    expected = torch.ones(shape).to(dtype)
    assert verbose_allclose(expected[1:].clone(), expected[1:]) == []
    assert verbose_allclose(expected.t().contiguous().t(), expected) == []
    wrong = torch.ones(shape)
    wrong[-1, -1] = 0
    assert verbose_allclose(wrong.to(dtype), expected)[0].startswith("1 of ")


def _dtypes() -> list[torch.dtype]:
    return [DTYPES[name] for name in sorted(DTYPES)]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", _dtypes(), ids=str)
@pytest.mark.parametrize("shape", [(), (3, 8), (0, 5)])
def test_a_reference_of_every_type_has_a_check(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Whatever a task may return: its own output passes, another is refused with a place, none raises."""
    nbytes = math.prod(shape) * dtype.itemsize
    expected = torch.ones(nbytes, dtype=torch.uint8).view(dtype).reshape(shape)
    check = make_match_reference(lambda _: expected, rtol=1e-3, atol=0)
    assert check(None, expected.clone()) == (True, "")
    if nbytes:
        other = torch.ones(nbytes, dtype=torch.uint8)
        other[-dtype.itemsize :] = 0 if dtype is torch.bool else 0x42
        wrong = other.view(dtype).reshape(shape)
        for each in (wrong, wrong.mT.contiguous().mT if shape else wrong):
            good, why = check(None, each)
            assert not good
            assert why.startswith(f"1 of {math.prod(shape)} elements differ; at (")


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in _dtypes() if dtype.is_floating_point or dtype.is_complex], ids=str
)
def test_tolerances_hold_for_all_numbers_that_are_rounded(dtype: torch.dtype) -> None:
    """Real and complex; two numbers in a byte are compared as they are."""
    if dtype is getattr(torch, "float4_e2m1fn_x2", None):
        pytest.skip("has no arithmetic")
    check = make_match_reference(lambda data: data, rtol=0, atol=1)
    right = torch.full((5,), 2.0).to(dtype)
    assert check(right, torch.full((5,), 1.0).to(dtype)) == (True, "")
    assert not check(right, torch.full((5,), 4.0).to(dtype))[0]
    if dtype.is_complex:
        nan = torch.full((3,), complex(float("nan"), 1)).to(dtype)
        assert check(nan, nan.clone()) == (True, "")
