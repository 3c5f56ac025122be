"""What a reference remembers of earlier calls, and its state_dict does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import copy_of, judged, judged_copy, pair

_COUNTED = "self.n = getattr(self, 'n', 0) + 1\nreturn x * (2 if self.n > {calls} else 1)"


def test_parameters_that_come_from_the_first_inputs(processes: ForkedJudges) -> None:
    """No copy is a wrong answer: no other module can be compared with it."""
    reference = (Path(__file__).parent / "reference.txt").read_text()
    rows = judged(processes, reference, *[copy_of(reference)] * 3)
    assert [row["verdict"] for row in rows] == ["invalid"] * 3, rows
    assert "depends on earlier calls" in rows[0]["message"]


@pytest.mark.parametrize(
    ("forward", "init", "pre"),
    [
        ("if self.f is None:\n    self.f = x.clone()\nreturn x - self.f", "self.f = None", ""),
        ("self.m = 0.9 * self.m + 0.1 * x.mean()\nreturn x + self.m", "self.m = 0.0", ""),
        ("self.n += 1\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))", ""),
        ("if not CALLS:\n    CALLS.append(x.clone())\nreturn x - CALLS[0]", "", "CALLS = []\n"),
        ("type(self).n = getattr(type(self), 'n', 0) + 1\nreturn x * (2 if type(self).n > 10 else 1)", "", ""),
        (_COUNTED.format(calls=10), "", ""),
        (_COUNTED.format(calls=25), "", ""),
    ],
)
def test_history_of_other_kinds(processes: ForkedJudges, forward: str, init: str, pre: str) -> None:
    """In attributes, in classes, in the file; an output that changes after so many calls."""
    row = judged_copy(processes, forward, init, pre=pre, timed_calls=10)
    assert (row["verdict"], "depends on earlier calls" in row["message"]) == ("invalid", True), row


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return self.b(x)", "self.b = nn.BatchNorm1d(16)"),
        ("if self.m is None:\n    self.m = torch.ones(16, 16).tril()[3]\nreturn x * self.m", "self.m = None"),
        ("return self.d(x)", "self.d = nn.Dropout(0.5)"),
    ],
)
def test_state_is_no_history(processes: ForkedJudges, forward: str, init: str) -> None:
    """Nor is a cache, whose output is the same at every call."""
    row = judged_copy(processes, forward, init, timed_calls=0)
    assert row["verdict"] == "accepted", row


def test_a_change_after_many_calls_is_never_a_candidates_fault(processes: ForkedJudges) -> None:
    """Where the judge's reference changes while a group is judged, a new one says so; before, nothing is to be seen."""
    reference, copy = pair(_COUNTED.format(calls=60), "")
    rows = judged(processes, reference, *[copy] * 6, timed_calls=10)
    assert {row["verdict"] for row in rows} == {"accepted", "invalid"}, rows
