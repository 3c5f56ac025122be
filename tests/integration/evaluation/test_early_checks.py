"""A file that is no Python is refused without a slot, as a run of it would be; every other file has to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.model import JobResult, Mode, SubmissionJob, Verdict
from runner.evaluation.evaluate import Evaluator
from runner.task_format.model import Harness
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import VECTORADD, evaluate, evaluator_with
from tests.unit import samples

#: One core, so that the other one is for checks.
SLOT = replace(samples.SLOT, cpus=(min(os.sched_getaffinity(0)),))
OPEN = b'def custom_kernel(data:\n    text = "\\d"\n    return data\n'
RIGHT = b"def custom_kernel(data):\n    return data[0] + data[1]\n"
#: What a run has and a check has not, or otherwise: times, and the container's facts.
_OWN = ("start_offset_ns", "end_offset_ns", "system_info")

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a check needs a core beside the slot's, this machine has one"
)


@pytest.fixture(scope="module")
def evaluator(docker_engine: DockerEngine, shared_settings: Config) -> Iterator[Evaluator]:
    """An evaluator with a core for checks; nothing is warm."""
    with evaluator_with(docker_engine, shared_settings, [SLOT], build_workers="auto", warm_containers=0) as made:
        yield made


def refuse(evaluator: Evaluator, given: SubmissionJob) -> JobResult | None:
    """What a check says."""
    return evaluator.refuse(given, SLOT, cancel=threading.Event())


def shown(result: JobResult) -> dict[str, Any]:
    """All of a result that does not come from its times or its place."""
    runs = [{key: value for key, value in asdict(run).items() if key not in _OWN} for run in result.runs]
    for run in runs:
        run["meta"] = {key: value for key, value in run["meta"].items() if key != "duration"}
    return {"verdict": result.verdict, "error": result.error, "runs": runs, "artifacts": result.artifacts}


@pytest.mark.parametrize(
    ("code", "mode"),
    [
        (OPEN, Mode.TEST),
        (OPEN, Mode.LEADERBOARD),
        (OPEN, Mode.BENCHMARK),
        (OPEN, Mode.PROFILE),
        (b"# -*- coding: none-such -*-\n" + RIGHT, Mode.TEST),
        (b"def custom_kernel(data):\n\treturn '\xc3\xa9' +\n", Mode.TEST),
        (b"return 1\n", Mode.TEST),
        (b"x = '" + 9000 * b"y" + b"\n", Mode.TEST),
        (b"x = " + 200_000 * b"-" + b"1\n", Mode.TEST),
    ],
    ids=["open", "ranked", "benchmark", "profile", "encoding", "not ASCII", "outside a function", "long line", "deep"],
)
def test_a_file_that_is_no_python_is_refused_as_its_run_would_be(evaluator: Evaluator, code: bytes, mode: Mode) -> None:
    """Verdict, message, rows and what the interpreter printed: only the times and the place differ."""
    given = samples.job_on(VECTORADD, code, mode=mode)
    result = refuse(evaluator, given)
    assert result is not None
    assert result.verdict is Verdict.COMPILE_ERROR
    assert shown(result) == shown(evaluate(evaluator, given, SLOT))
    assert result.runs[0].system_info["runner"]["slot"] == "build worker"


@pytest.mark.parametrize(
    "code",
    [
        RIGHT,
        b"raise SystemExit(3)\n",
        b"def kernel(data):\n    return data\n",
        b"\xff\n",
    ],
    ids=["right", "exits", "other name", "not UTF-8"],
)
def test_whatever_else_it_is_has_to_run(evaluator: Evaluator, code: bytes) -> None:
    """None of it is run here; a file that the parser cannot read to its end has no verdict, either."""
    assert refuse(evaluator, samples.job_on(VECTORADD, code)) is None


def test_a_task_with_its_own_program_has_the_last_word(evaluator: Evaluator) -> None:
    """No container is started."""
    with capture_logs() as logs:
        assert refuse(evaluator, samples.job_on(samples.task(harness=Harness.PROGRAM), OPEN)) is None
    assert not [entry for entry in logs if entry["event"] == "build_finished"]


def test_without_a_spare_core_nothing_is_checked(docker_engine: DockerEngine, settings: Config) -> None:
    """Nor with no build workers: a check would disturb what is timed."""
    every = replace(SLOT, cpus=tuple(os.sched_getaffinity(0)))
    for workers, slot in (("auto", every), (0, SLOT)):
        with evaluator_with(docker_engine, settings, build_workers=workers) as evaluator:
            evaluator._build_cache.arrange([slot])
            assert not evaluator.can_refuse
