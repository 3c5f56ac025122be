"""References that end their process, or close standard streams, when their file is run or when they are called."""

from __future__ import annotations

import pytest

from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair
from tests.support.waiting import PATIENCE_S

_PRE = "import os\n"
_CLOSES = (
    "os.close(0)",
    "os.close(1)",
    "os.close(2)",
    "os.closerange(0, 3)",
    "os.close(1); open('own', 'w')",
    "os.dup2(os.open(os.devnull, os.O_RDWR), 1)",
)


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


#: Ways to end a process, by what is told of them; those that raise are told by the judge itself.
_ENDINGS = {
    "os._exit(0)": "(exit code 0)",
    "os._exit(3)": "(exit code 3)",
    "os.abort()": "(signal 6)",
    "os.kill(os.getpid(), signal.SIGKILL)": "(signal 9)",
    "os.execv('/bin/true', ['true'])": "(exit code 0)",
    "raise KeyboardInterrupt": "(exit code 1)",
    "sys.exit(0)": "SystemExit: 0",
    "quit()": "SystemExit",
    "raise asyncio.CancelledError('gone')": "CancelledError: gone",
}
_IMPORTS = "import asyncio, ctypes, os, signal, sys\nimport torch\n"


def _task(place: str, ending: str, *, ranks: bool) -> str:
    """A task whose functions end their process, `place` the second time that they are called."""
    return f"""
{_IMPORTS}
calls = dict()
def reach(place, often=2):
    calls[place] = calls.get(place, 0) + 1
    if place == {place!r} and calls[place] == often:
        {ending}
def generate_input(size, seed{", rank, world_size" if ranks else ""}):
    reach("the task's generate_input")
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)){", rank, world_size" if ranks else ""}
def ref_kernel(data):
    reach("the task's ref_kernel", 1)
    return data[0] if isinstance(data, tuple) else data
def check_implementation(data, output):
    reach("the task's check_implementation")
    if {place!r} == "the task's ref_kernel":
        raise ValueError("look at the structure")
    return ""
reach("the import of the task's reference.py", 1)
"""


_PLACES = {
    "the import of the task's reference.py": "",
    "the task's generate_input": " in test 2 of 2",
    "the task's ref_kernel": " in test 1 of 2",
    "the task's check_implementation": " in test 2 of 2",
}


def _judged_task(processes: ForkedJudges, place: str, ending: str, ranks: int | None) -> tuple[str, str]:
    """Verdict and message of the submission of such a task."""
    size = "size: 8; seed: {}" + (f"; world_size: {ranks}" if ranks else "")
    request = JudgeRequest(
        modes=(ModeRequest(name="test", cases=(size.format(1), size.format(2)), timeout_s=PATIENCE_S),),
        files={"reference.py": _task(place, ending, ranks=bool(ranks))},
        worker_files=(),
        submission_name="submission.py",
        submission="def custom_kernel(data):\n    return data[0] if isinstance(data, tuple) else data\n",
        ranks=ranks,
    )
    report = processes.evaluate(request)
    if report.author_exit is not None:
        assert not report.steps
        return "invalid", str(report.author_exit)
    judged = report.steps[-1].judged
    assert judged is not None
    return judged.verdict, judged.message or ""


@pytest.mark.parametrize("place", _PLACES)
def test_a_task_that_ends_its_judge(processes: ForkedJudges, place: str) -> None:
    """It is named with function, ending and case."""
    for ending, words in _ENDINGS.items():
        verdict, message = _judged_task(processes, place, ending, None)
        raised = "ended the judge's process" not in message
        # It is asked only after the check has raised, which is told then.
        how = "ValueError: look at the structure" if place == "the task's ref_kernel" and raised else words
        assert verdict == "invalid", (ending, message)
        assert how in message, (ending, message)
        assert raised == how.startswith(("SystemExit", "CancelledError", "ValueError")), (ending, message)
        assert raised or message.startswith(f"{place} ended the judge's process"), (ending, message)
        assert raised or message.endswith(_PLACES[place]), (ending, message)


@pytest.mark.parametrize("place", _PLACES)
def test_a_task_that_ends_a_rank_checker(processes: ForkedJudges, place: str) -> None:
    """It is named with its rank, which is the judge's to tell."""
    verdict, message = _judged_task(processes, place, "os._exit(0)", 2)
    assert (verdict, message.partition("(rank")[0]) == ("invalid", f"{place} ended the judge's process "), message
    assert message.endswith(f"{_PLACES[place]} (reference.py)"), message


_IN_JUDGE = "os.path.basename(os.getcwd()) == 'judge'"
#: Code of a reference that the judge runs.
_CODE = (
    "the reference",
    "get_init_inputs",
    "the reference's constructor",
    # It is asked for the first time to see whether parts are lazy.
    "the reference's parts",
    "get_inputs",
    "the reference's forward",
    "the reference's mode",
    "the reference's named_parameters",
)


@pytest.mark.parametrize("place", _CODE)
def test_a_reference_that_ends_the_judge(processes: ForkedJudges, place: str) -> None:
    """Where its own worker survives, since it ends only the process of a judge, every candidate is invalid."""
    for ending, how in list(_ENDINGS.items())[: 4 if place == "get_inputs" else 1]:
        reference = f"""
{_IMPORTS}
def reach(place):
    if place == {place!r} and {_IN_JUDGE}:
        {ending}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        reach("the reference's constructor")
    def forward(self, x):
        reach("the reference's forward")
        return self.layer(x)
    def state_dict(self, *args, **kwargs):
        reach("the reference's parts")
        return super().state_dict(*args, **kwargs)
    def eval(self):
        reach("the reference's mode")
        return super().eval()
    def named_parameters(self, *args, **kwargs):
        reach("the reference's named_parameters")
        return super().named_parameters(*args, **kwargs)
def get_inputs():
    reach("get_inputs")
    return [torch.randn(2, 4)]
def get_init_inputs():
    reach("get_init_inputs")
    return []
reach("the reference")
"""
        says = f"{place} ended the judge's process {how}"
        for row in judged(processes, reference, "x = 1", "y = 1", timed_calls=0):
            assert (row["verdict"], row["message"][: len(says)]) == ("invalid", says), (ending, row)


def test_a_reference_that_ends_its_worker_in_a_late_call(processes: ForkedJudges) -> None:
    """After it has been found good: what it has judged by then counts, and no candidate bears the blame."""
    counts = f"self.calls = getattr(self, 'calls', 0) + (not {_IN_JUDGE})\n"
    ends = "if self.calls > 9:\n    os._exit(0)\n"
    reference, _ = pair(f"{counts}{ends}return x + 1", pre=_PRE)
    _, candidate = pair("return x + 1")
    says = "the reference failed in a later call: the process"
    for row in judged(processes, reference, candidate, candidate, timed_calls=40):
        assert (row["verdict"], row["message"][: len(says)]) == ("invalid", says), row
