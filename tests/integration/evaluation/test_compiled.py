"""CUDA C++ tasks under the built-in harness: nvcc makes a library, the worker calls it, the judge decides."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.model import JobResult, Mode, SubmissionJob, Verdict
from runner.evaluation.evaluate import Evaluator
from runner.task_format import load_folder
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import evaluate, evaluator_with
from tests.plugins.live import ROOT
from tests.unit import samples

FOLDER = ROOT / "tests" / "fixtures" / "compiled_task"
TASK = load_folder(FOLDER).task
#: One core, so that others are left for builds.
SLOT = replace(samples.SLOT, cpus=(min(os.sched_getaffinity(0)),))

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="lang cu needs nvcc on the host, there is none")

Evaluate = Callable[[str, Mode], JobResult]


def job(solution: str, mode: Mode) -> SubmissionJob:
    """A job of the task with one of its solutions."""
    path = FOLDER / "solutions" / solution
    return samples.job_on(TASK, path.read_bytes(), mode=mode, file_name=path.name, submission_id=7)


@contextmanager
def evaluator(engine: DockerEngine, settings: Config, workers: int | str) -> Iterator[Evaluator]:
    """One that builds ahead, or not."""
    with evaluator_with(engine, settings, build_workers=workers, warm_containers=0) as made:
        made._build_cache.arrange([SLOT])
        yield made


@pytest.fixture
def ahead(docker_engine: DockerEngine, settings: Config) -> Iterator[Evaluate]:
    """Evaluates what was built in a container of its own."""
    with evaluator(docker_engine, settings, "auto") as made:
        yield lambda solution, mode: evaluate(made, job(solution, mode), SLOT)


@pytest.fixture
def at_once(docker_engine: DockerEngine, settings: Config) -> Iterator[Evaluate]:
    """Evaluates and compiles in one container."""
    with evaluator(docker_engine, settings, 0) as made:
        yield lambda solution, mode: evaluate(made, job(solution, mode), SLOT)


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
    docker_engine: DockerEngine, settings: Config
) -> None:
    """A source that compiles is built once; one that does not has its result without a slot."""
    with evaluator(docker_engine, settings, "auto") as checking, capture_logs() as logs:
        broken, right = (job(name, Mode.TEST) for name in ("wrong/does_not_compile.cuh", "correct/loop.cuh"))
        result = checking.refuse(broken, SLOT, cancel=threading.Event())
        assert result is not None
        ran = evaluate(checking, broken, SLOT)
        assert (result.verdict, result.error, result.runs) == (Verdict.COMPILE_ERROR, ran.error, ran.runs)
        assert checking.refuse(right, SLOT, cancel=threading.Event()) is None
        assert evaluate(checking, right, SLOT).verdict is Verdict.ACCEPTED
    # The broken one was built again: what the check has said is all there is to say of it.
    assert len([entry for entry in logs if entry["event"] == "build_finished"]) == 3
