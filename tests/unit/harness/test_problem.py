"""What a task's check may answer."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tasks.harness.judge.problem import Problem, TaskFault

TRUTHS: dict[str, Callable[[bool], object]] = {
    "python": bool,
    "numpy": np.bool_,
    "torch": torch.tensor,
    "torch, one element": lambda said: torch.tensor([said]),
}


def _answer(answer: object) -> tuple[bool, str]:
    return Problem(generate=dict, check=lambda *_: answer, reference=None, modules=frozenset()).check(None, None)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("said", [True, False])
def test_truths_of_libraries_are_answers(truth: str, said: bool) -> None:
    """Alone, in a tuple or a list, with a text or None for it; a text alone is what is wrong, and none is right."""
    answer = TRUTHS[truth](said)
    unsaid = "" if said else "the output is wrong"
    assert _answer(answer) == (said, unsaid)
    assert _answer((answer, None)) == (said, unsaid)
    assert _answer((answer, "")) == (said, unsaid)
    assert _answer([answer, "why"]) == (said, "why")
    assert [_answer(text) for text in ("", "why")] == [(True, ""), (False, "why")]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (None, "a NoneType,"),
        (1, "a int,"),
        (torch.ones(2) > 0, "a Tensor,"),
        (torch.ones(1), "a Tensor,"),
        (np.ones(2) > 0, "a ndarray,"),
        ((True, ["a line"]), "a tuple of bool, list,"),
        ((1, "why"), "a tuple of int, str,"),
        ((True, "why", 3), "a tuple of bool, str, int,"),
        ((), "a tuple,"),
        ({}, "a dict,"),
    ],
)
def test_no_other_answer_is_guessed(answer: object, named: str) -> None:
    """The task's fault names what it holds."""
    with pytest.raises(TaskFault, match=re.escape(f"returned {named}")):
        _answer(answer)
