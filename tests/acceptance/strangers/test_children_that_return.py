"""Children that a submission, a task, a reference or a candidate forks, and that do not end by `os._exit`."""

from __future__ import annotations

import pytest

from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Timing
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair
from tests.support.waiting import PATIENCE_S

_CASE = "size: 8; seed: 1"
#: How a child ends -> its exit code without a harness. One that returns in a timed call has said that the call is over.
_ENDS = {
    "sys.exit()": 0,
    "sys.exit(7)": 7,
    "sys.exit(-1)": 255,
    "sys.exit('a text')": 1,
    "raise ValueError('of the child')": 1,
    "raise KeyboardInterrupt": 1,
    "return": 0,
}
_FORK = """
import os, sys
def forked():
    pid = os.fork()
    if pid == 0:
        {end}
    else:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == {code}, code
"""
_TASK = """
import torch
{fork}
def generate_input(size, seed):
    {generate_input}
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))
def ref_kernel(data):
    return data + 1
def check_implementation(data, output):
    {check_implementation}
    return "" if torch.equal(output, data + 1) else "other numbers"
{file}
"""
_SUBMISSION = """
{fork}
{file}
def custom_kernel(data):
    {custom_kernel}
    return data + 1
"""


def _filled(text: str, place: str, fork: str) -> str:
    """A file that forks in one of its places."""
    places = dict.fromkeys(("generate_input", "check_implementation", "custom_kernel", "file"), "pass")
    return text.format(**{**places, "fork": fork, place: "forked()"})


_PLACES = ("task's file", "generate_input", "check_implementation", "submission's file", "custom_kernel")


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("end", _ENDS)
def test_of_tasks_and_submissions(processes: ForkedJudges, place: str, end: str) -> None:
    """Each is the parent's own matter: the run is as without it."""
    fork = _FORK.format(end=end, code=_ENDS[end])
    owner, _, name = place.rpartition("'s ")
    timed = end != "return"
    test = ModeRequest(name="test", cases=(_CASE,), timeout_s=PATIENCE_S)
    benchmark = ModeRequest(name="benchmark", cases=(_CASE,), timeout_s=PATIENCE_S, timing=Timing(max_runs=5))
    request = JudgeRequest(
        modes=(test, benchmark) if timed else (test,),
        files={"reference.py": _filled(_TASK, "" if owner == "submission" else name, fork)},
        worker_files=(),
        submission_name="submission.py",
        submission=_filled(_SUBMISSION, "" if owner == "task" else name, fork),
    )
    report = processes.evaluate(request)
    assert report.author_exit is None
    judgements = [step.judged for step in report.steps]
    assert [judged and (judged.verdict, judged.message) for judged in judgements] == [("accepted", None)] * (1 + timed)


@pytest.mark.parametrize("end", _ENDS)
def test_of_modules(processes: ForkedJudges, end: str) -> None:
    """So it is with a reference's and a candidate's."""
    fork = _FORK.format(end=end, code=_ENDS[end])
    reference, copy = pair("forked()\nreturn x + 1", "forked()", pre=f"{fork}forked()\n")
    (row,) = judged(processes, reference, copy, timed_calls=0 if end == "return" else 3, inputs=2)
    assert row["verdict"] == "accepted", row
