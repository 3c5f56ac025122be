"""What a check of a waiting file makes a verdict of, and what its container gets to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.base.model import JobResult, Mode, Verdict
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import REFUSED
from runner.evaluation.kinds.kernel import Kernel
from runner.evaluation.kinds.kind import Spent
from runner.evaluation.kinds.program import Program
from runner.task_format.model import Harness
from sandbox.host.container import ContainerReport
from sandbox.protocol import StepResult, StepsRequest
from sandbox.spec import Ending
from tests.unit import samples

CPUS = (6, 7)
SPENT = Spent(elapsed_ns=9_000_000_000, built_ns=6_000_000_000, waited_ns=1_000_000_000)
PARSED = samples.step("parse", {}, exit_code=REFUSED, stdout="SyntaxError: invalid syntax", stderr="a warning")


def checked(
    *steps: StepResult, kind: Kernel | Program | None = None, ok: bool | None = True, **ending: object
) -> JobResult | None:
    """The result of a job, a leaderboard job of Python unless told otherwise, whose check left this."""
    outcome = samples.outcome(**ending)
    report = ContainerReport(steps=steps, artifacts=(), ok=ok, message=None, outcome=outcome, attested={})
    return (kind or Kernel(samples.context())).refused_early(Build(archive=None, report=report), SPENT)


@pytest.mark.parametrize(
    "result",
    [
        checked(samples.step("parse", {})),
        checked(samples.step("parse", {}, exit_code=1, stderr="MemoryError")),
        checked(samples.step("parse", {}, exit_code=None, signal=11)),
        checked(samples.step("parse", {}, exit_code=None, timed_out=True)),
        checked(),
        checked(PARSED, oom_kills=1),
        checked(PARSED, ok=False),
        checked(PARSED, ok=None, ending=Ending.DEADLINE),
        checked(PARSED, ok=None, ending=Ending.DIED),
    ],
    ids=["Python", "error", "crash", "too long", "nothing", "memory", "harness", "deadline", "died"],
)
def test_whatever_else_happens_says_nothing(result: JobResult | None) -> None:
    """The job has to run."""
    assert result is None


def test_a_check_sees_the_file_alone_in_a_container_without_device() -> None:
    """Under the policy of a build: nothing of the task, no seed, and nothing comes back but the message."""
    context = samples.context(job=samples.job(mode=Mode.TEST, code=b"x = (\n"))
    plan = Kernel(context).check_plan(CPUS)
    assert plan is not None
    assert isinstance(plan.request, StepsRequest)
    assert (plan.request.files, plan.request.keep) == ({"submission.py": b"x = (\n"}, ())
    assert [step.argv[-2:] for step in plan.request.steps] == [("submission.py", str(REFUSED))]
    assert (plan.spec.devices, plan.spec.limits.cpus, plan.spec.boot.kind) == (None, CPUS, "steps")


def test_python_of_several_devices_is_not_checked() -> None:
    """Each rank says what it found."""
    task = samples.task(multi_gpu=True)
    tests, benchmarks = (
        tuple({**case, "world_size": 1} for case in cases or ()) for cases in (task.tests, task.benchmarks)
    )
    assert Kernel(samples.context(replace(task, tests=tests, benchmarks=benchmarks))).check_plan(CPUS) is None


@pytest.mark.parametrize("harness", list(Harness))
def test_lang_cu_is_built(harness: Harness) -> None:
    """What nvcc refuses has the result of its run; what it compiles, or a compiler that does not run, has to run."""
    cu = samples.cu_task()
    task = cu if harness is Harness.PROGRAM else replace(cu, extra=samples.task().extra)
    kind = (Kernel if task.harness is Harness.BUILTIN else Program)(samples.context(task))
    assert kind.check_plan(CPUS) == kind.build_plans(CPUS, beside=True)[0]
    version = samples.step("nvcc-version", {})
    result = checked(version, samples.step("compile", {}, exit_code=1, stderr="a.cu(1): error: no"), kind=kind)
    assert result is not None
    assert (result.verdict, result.runs) == (Verdict.COMPILE_ERROR, ())
    assert checked(version, samples.step("compile", {}), kind=kind) is None
    assert checked(samples.step("nvcc-version", {}, exit_code=1), kind=kind) is None
