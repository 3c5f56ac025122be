"""CUDA C++ tasks under the built-in harness: nvcc makes a library, the worker calls it, the judge decides."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.base.gpu_types import Registry
from runner.base.model import Job, JobResult, Mode, SubmissionJob, Verdict
from runner.evaluation.evaluate import EvaluationSettings, Evaluator
from runner.task_format import extra_to_stored, load_folder, to_stored
from sandbox.host.engine import DockerEngine
from tests.plugins.live import ROOT
from tests.unit import samples

FOLDER = ROOT / "tests" / "fixtures" / "compiled_task"
TASK = load_folder(FOLDER).task
#: One core, so that others are left for builds.
SLOT = replace(samples.SLOT, cpus=(min(os.sched_getaffinity(0)),))

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="lang cu needs nvcc on the host, there is none")

Evaluate = Callable[[str, Mode], JobResult]


def job(solution: str, mode: Mode) -> Job:
    """A job of the task with one of its solutions."""
    drawn = samples.job(mode=mode, code=(FOLDER / "solutions" / solution).read_bytes())
    return replace(
        drawn, file_name=Path(solution).name, task=to_stored(TASK), extra=extra_to_stored(TASK.extra), submission_id=7
    )


def evaluator(engine: DockerEngine, settings: EvaluationSettings, workers: int | None) -> Evaluator:
    """One that builds ahead, or not."""
    made = Evaluator(engine, Registry.load(), replace(settings, build_workers=workers, warm_containers=0))
    made._build_cache.arrange([SLOT])
    # What a probe would find out; none of these tests is about it.
    made._systems["CPU"] = {"hostname": "test-host"}
    return made


@pytest.fixture
def ahead(docker_engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Evaluate]:
    """Evaluates what was built in a container of its own."""
    with _closing(evaluator(docker_engine, settings, None)) as run:
        yield run


@pytest.fixture
def at_once(docker_engine: DockerEngine, settings: EvaluationSettings) -> Iterator[Evaluate]:
    """Evaluates and compiles in one container."""
    with _closing(evaluator(docker_engine, settings, 0)) as run:
        yield run


class _closing:  # noqa: N801 reads like contextlib's
    def __init__(self, made: Evaluator) -> None:
        self._made = made

    def __enter__(self) -> Evaluate:
        return lambda solution, mode: self._made.run(job(solution, mode), SLOT, cancel=threading.Event())

    def __exit__(self, *_: object) -> None:
        self._made.close()


def test_what_was_built_ahead_is_judged_like_every_submission(ahead: Evaluate) -> None:
    """Right and timed: the verdict is the judge's, nvcc's facts stand in `compilation`, and no compiler ran again."""
    result = ahead("correct/loop.cuh", Mode.BENCHMARK)
    assert result.verdict is Verdict.ACCEPTED, result.error
    (run,) = result.runs
    assert run.system_info["runner"]["assurance"]["correctness"] == "judge"
    assert float(run.result["benchmark.0.mean"]) > 0
    assert run.compilation is not None
    assert run.compilation["success"] is True
    assert "-shared" in run.compilation["command"]
    assert ahead("wrong/forgets_the_scale.cuh", Mode.TEST).verdict is Verdict.WRONG_ANSWER


def test_a_compiler_s_words_are_the_verdict_s(ahead: Evaluate) -> None:
    """A source that nvcc refuses never gets a slot, and the sentence is nvcc's first error."""
    result = ahead("wrong/does_not_compile.cuh", Mode.TEST)
    assert (result.verdict, result.runs) == (Verdict.COMPILE_ERROR, ())
    assert 'identifier "undeclared" is undefined' in (result.error or "")


def test_without_lanes_the_worker_compiles_and_can_forge_nothing(at_once: Evaluate) -> None:
    """The same verdicts where compiler and run share a container; a report of the program's own is no report."""
    forged = at_once("wrong/writes_the_verdict.cuh", Mode.TEST)
    assert forged.verdict is Verdict.REJECTED, forged.error
    broken = at_once("wrong/does_not_compile.cuh", Mode.TEST)
    assert broken.verdict is Verdict.COMPILE_ERROR
    assert 'identifier "undeclared" is undefined' in (broken.error or "")
    assert "detected in the compilation" in broken.runs[0].meta["stderr"]


def test_an_early_check_refuses_as_the_run_would_and_leaves_its_build_to_it(
    docker_engine: DockerEngine, settings: EvaluationSettings
) -> None:
    """A source that compiles is built once; one that does not has its result without a slot."""
    checking = evaluator(docker_engine, settings, None)
    with _closing(checking) as run, capture_logs() as logs:
        broken, right = (job(name, Mode.TEST) for name in ("wrong/does_not_compile.cuh", "correct/loop.cuh"))
        assert isinstance(broken, SubmissionJob)
        assert isinstance(right, SubmissionJob)
        result = checking.refuse(broken, SLOT, cancel=threading.Event())
        assert result is not None
        ran = run("wrong/does_not_compile.cuh", Mode.TEST)
        assert (result.verdict, result.error, result.runs) == (Verdict.COMPILE_ERROR, ran.error, ran.runs)
        assert checking.refuse(right, SLOT, cancel=threading.Event()) is None
        assert run("correct/loop.cuh", Mode.TEST).verdict is Verdict.ACCEPTED
    # The broken one was built again: what the check has said is all there is to say of it.
    assert len([entry for entry in logs if entry["event"] == "build_finished"]) == 3
