"""References that end their process, or close standard streams, when their file is run or when they are called."""

from __future__ import annotations

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair

_PRE = "import ctypes, os, signal\n"
_ENDS = ("os._exit(0)", "os._exit(1)", "os.abort()", "os.kill(os.getpid(), signal.SIGILL)", "os.closerange(0, 256)")
_CLOSES = (
    "os.close(0)",
    "os.close(1)",
    "os.close(2)",
    "os.closerange(0, 3)",
    "os.close(1); open('own', 'w')",
    "os.dup2(os.open(os.devnull, os.O_RDWR), 1)",
)


@pytest.mark.parametrize("ends", _ENDS)
@pytest.mark.parametrize("where", ["file", "constructor", "call"])
def test_a_reference_that_ends_its_process(processes: ForkedJudges, ends: str, where: str) -> None:
    """It does so in its own worker first."""
    pre, init, forward = (f"{ends}\n" if place == where else "" for place in ("file", "constructor", "call"))
    reference, copy = pair(f"{forward}return x + 1", init, pre=_PRE + pre)
    (row,) = judged(processes, reference, copy, timed_calls=0)
    assert row["verdict"] == "invalid", row
    assert "the process" in row["message"], row


@pytest.mark.parametrize("where", ["file", "call"])
def test_a_reference_that_closes_streams(processes: ForkedJudges, where: str) -> None:
    """What is opened next does not get their numbers; what it prints goes nowhere, or is its own error."""
    for closes in _CLOSES:
        once = f"if not hasattr(self, 'n'):\n    self.n = 1\n    {closes}\n"
        pre, forward = (f"{closes}\nprint('hello')\n", "") if where == "file" else ("", f"{once}print('hello')\n")
        reference, copy = pair(f"{forward}return x + 1", pre=_PRE + pre)
        (row,) = judged(processes, reference, copy.replace(closes, "pass"), timed_calls=3)
        assert row["verdict"] in ("accepted", "invalid"), (closes, row)
        assert row["verdict"] == "accepted" or "Bad file descriptor" in row["message"], (closes, row)
