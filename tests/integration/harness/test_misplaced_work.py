"""Work before the inputs are released or after the answer, less work, and control calls made dearer: none of it ranks.

Claims that are only lowered are among the attacks (`claims_half`, `claims_nothing`). Each submission is judged with all
defences, and once without what stops it, where it gains: one that gains nowhere would prove nothing. What makes control
calls dearer is stopped twice, since claims that are all lowered show in undisturbed calls, too. Two ways of looking out
for the inputs are left out, because they gain nothing either way: /proc/self/maps and /proc/self/fd show inputs when
the worker has fetched them, and it does that when the start flag is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import evaluate
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.benchmarks._judging import cases_of
from tests.support.judge_requests import request_of

FOLDER = Path(__file__).parents[2] / "fixtures" / "harness" / "adversaries"
#: Inputs that travel by copy, and by descriptor; what the work takes over them, in ns.
WORK_NS = {4 << 10: 1_000_000, 3 << 20: 3_000_000, 16 << 20: 12_000_000}
BOTH = (4 << 10, 3 << 20)
TIMING = Timing(min_runs=12, max_runs=12)


@dataclass(frozen=True, kw_only=True)
class Adversary:
    """A submission, the defences that stop it, and the verdicts that it may get."""

    file: str
    defences: tuple[str, ...]
    verdicts: tuple[str, ...]
    sizes: tuple[int, ...] = BOTH
    #: What is changed in the file.
    change: tuple[str, str] = ("", "")


ADVERSARIES = {
    "begins early": Adversary(
        file="begins_early", defences=("held",), verdicts=("accepted", "rejected"), sizes=(*BOTH, 16 << 20)
    ),
    "ends early": Adversary(
        file="ends_early", defences=("looked", "clock"), verdicts=("rejected", "wrong_answer"), sizes=(*BOTH, 16 << 20)
    ),
    "ends early and keeps the judge reading": Adversary(
        file="ends_early",
        defences=("looked", "clock"),
        verdicts=("accepted", "rejected", "wrong_answer"),
        change=("TENSORS = 0", "TENSORS = 3900"),
    ),
    "processes keep the cores busy": Adversary(
        file="busies_the_cores", defences=("calm", "clock"), verdicts=("accepted", "rejected")
    ),
    "threads keep the cores busy": Adversary(
        file="busies_the_cores",
        defences=("calm", "clock"),
        verdicts=("accepted", "rejected"),
        change=('BY = "process"', 'BY = "thread"'),
    ),
    "adds tensors": Adversary(file="adds_tensors", defences=("asked", "clock"), verdicts=("accepted", "rejected")),
    "reads half": Adversary(file="reads_half", defences=("every",), verdicts=("wrong_answer",)),
}


def _step(processes: ForkedJudges, adversary: Adversary, nbytes: int, *, without: tuple[str, ...] = ()) -> StepResult:
    """The benchmark step over inputs of so many bytes."""
    files = {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("reference.py", "rows.py")}
    request = request_of(
        files["reference.py"],
        (FOLDER / f"{adversary.file}.py").read_text(encoding="utf-8").replace(*adversary.change),
        f"work_ns: {WORK_NS[nbytes]}; size: {nbytes // 4}; seed: 1",
        "benchmark",
        timeout_s=600.0,
        timing=TIMING,
        files=files,
        worker_files=("rows.py",),
    )
    (step,) = evaluate(request, start=partial(processes.start, without=without)).steps
    return step


@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "nbytes"), [(name, nbytes) for name, adversary in ADVERSARIES.items() for nbytes in adversary.sizes]
)
def test_misplaced_work_does_not_rank(processes: ForkedJudges, name: str, nbytes: int) -> None:
    """The mean that is reported is at least nine tenths of what the work takes, or there is none."""
    step = _step(processes, ADVERSARIES[name], nbytes)

    assert step.judged is not None
    assert step.judged.verdict in ADVERSARIES[name].verdicts, step.judged
    if step.judged.verdict == "accepted":
        (case,) = cases_of(step)
        assert case.number("mean") >= 0.9 * WORK_NS[nbytes], case


@pytest.mark.alone
@pytest.mark.parametrize(("name", "nbytes"), [(name, nbytes) for name in ADVERSARIES for nbytes in BOTH])
def test_it_would_rank_without_the_defence(processes: ForkedJudges, name: str, nbytes: int) -> None:
    """The same submission is accepted with less than nine tenths of what the work takes: the test above can fail.

    Where it keeps the cores busy the work may take longer, as the judge's clock says. The median counts here: one
    call that the machine interrupted may take several times as long as the others.
    """
    step = _step(processes, ADVERSARIES[name], nbytes, without=ADVERSARIES[name].defences)

    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged
    (case,) = cases_of(step)
    took_ns = max(WORK_NS[nbytes], case.details["outside_median_ns"])
    assert case.number("median") < 0.9 * took_ns, case
