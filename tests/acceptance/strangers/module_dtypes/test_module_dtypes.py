"""Modules that take and return tensors of every dtype, and of classes of their own."""

from __future__ import annotations

import pytest

from tasks.harness.shared.values import DTYPES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, judged_copy, pair

_CLASS = "class Named(torch.Tensor):\n    pass\n"
_FLOAT8 = [name for name in DTYPES if name.startswith("float8")]
_ODD = [name for name in DTYPES if name.startswith(("float8", "float4", "complex32", "uint"))]


@pytest.mark.parametrize("name", _ODD)
def test_inputs_and_outputs(processes: ForkedJudges, name: str) -> None:
    """A copy is accepted; packed halves of bytes, which torch cannot copy, are refused with a sentence."""
    packed = name == "float4_e2m1fn_x2"
    made = f".to(torch.uint8).view(torch.{name})" if packed else f".mul(50).to(torch.{name})"
    row = judged_copy(processes, "return x.clone()", inputs=f"[torch.rand(8, 16){made}]", timed_calls=3)
    assert row["verdict"] == ("invalid" if packed else "accepted"), row
    assert "not implemented" in row["message"] or not packed


@pytest.mark.parametrize("name", _FLOAT8)
def test_a_step_of_float8_is_no_error(processes: ForkedJudges, name: str) -> None:
    """Sums in double round to a neighbour here and there; zeros and halves are wrong."""
    init = "self.w = nn.Parameter(torch.rand(256, 64) / 16)"
    text = "return (x{0} @ self.w{0}){1}.to(torch.{2})"
    inputs = "[torch.rand(64, 256)]"
    reference, _ = pair(text.format("", "", name), init, inputs=inputs)
    copies = [
        pair(text.format(*parts, name), init, inputs=inputs)[1] for parts in ((".double()", ""), ("", ".mul(0.4)"))
    ]
    rows = judged(processes, reference, *copies, timed_calls=0)
    assert [row["verdict"] for row in rows] == ["accepted", "wrong_answer"], rows


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return (x + 1).as_subclass(Named)", ""),
        ("return {'all': [(x + 1).as_subclass(Named)]}", ""),
        (
            "return (x @ self.w).as_subclass(torch.Tensor)",
            "self.w = nn.Parameter(torch.rand(16, 4).as_subclass(Named))",
        ),
        ("return x @ self.w", "self.register_buffer('w', torch.rand(16, 4).as_subclass(Named))"),
        ("return self.w", "self.w = nn.Parameter(torch.rand(16, 4))"),
    ],
)
def test_classes_of_tensors(processes: ForkedJudges, forward: str, init: str) -> None:
    """What a file names in its own way is a tensor for the judge, which has a class of that name in each process."""
    row = judged_copy(processes, forward, init, pre=_CLASS, timed_calls=3)
    assert row["verdict"] == "accepted", row


def test_a_state_that_is_a_copy_has_no_shifted_weights(processes: ForkedJudges) -> None:
    """What is written to a copy changes no output, so the result does not say that other weights were tried."""
    init = (
        "self.w = nn.Parameter(torch.rand(16, 4))\n"
        "self._register_state_dict_hook(lambda m, s, p, l: {k: v.clone() for k, v in s.items()})"
    )
    row = judged_copy(processes, "return x @ self.w", init, timed_calls=0)
    assert (row["verdict"], row["perturbed"]) == ("accepted", False), row


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool_"])
def test_numbers_of_numpy(processes: ForkedJudges, kind: str) -> None:
    """They are numbers wherever they stand, as those of a copy are."""
    forward = f"return x, [numpy.{kind}(1)], {{'a': numpy.{kind}(0)}}"
    row = judged_copy(processes, forward, pre="import numpy\n", timed_calls=3)
    assert row["verdict"] == "accepted", row
