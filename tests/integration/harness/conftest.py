"""Requests over the small tasks in tests/fixtures/harness, and judge-worker pairs to run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.request import Floor, JudgeRequest, ModeRequest
from tasks.harness.local import LocalReport
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.waiting import PATIENCE_S

FIXTURES = Path(__file__).parents[2] / "fixtures" / "harness"

TESTS = ("size: 64; seed: 11", "size: 257; seed: 12")
BENCHMARKS = ("size: 1024; seed: 21",)

#: Submission name, task name, further fields of the request -> what the judge reported.
Run = Callable[..., LocalReport]


def make_request(
    submission: str,
    task: str = "add",
    *,
    modes: tuple[str, ...] = ("test",),
    tests: tuple[str, ...] = TESTS,
    benchmarks: tuple[str, ...] = BENCHMARKS,
    # No verdict is a matter of speed but those of tests that give a limit of their own.
    timeout_s: float = PATIENCE_S,
    build_timeout_s: float = PATIENCE_S,
    seed: int | None = None,
    ranks: int | None = None,
    memory_bytes: int = 1 << 30,
    floors: tuple[Floor | None, ...] = (),
) -> JudgeRequest:
    """A request over fixture files."""
    files = {path.name: path.read_text() for path in (FIXTURES / "tasks" / task).iterdir() if path.is_file()}
    return JudgeRequest(
        modes=tuple(
            ModeRequest(name=mode, cases=tests, timeout_s=timeout_s)
            if mode == "test"
            else ModeRequest(name=mode, cases=benchmarks, timeout_s=timeout_s, floors=floors)
            for mode in modes
        ),
        files=files,
        worker_files=tuple(name for name in files if name != "reference.py"),
        submission_name="submission.py",
        submission=(FIXTURES / "submissions" / f"{submission}.py").read_text(),
        seed=seed,
        ranks=ranks,
        memory_bytes=memory_bytes,
        build_timeout_s=build_timeout_s,
    )


@pytest.fixture
def judge(processes: ForkedJudges) -> Run:
    """Run a request with two fresh processes."""

    def run(submission: str, task: str = "add", **fields: object) -> LocalReport:
        return processes.evaluate(make_request(submission, task, **fields))  # type: ignore[arg-type]  # checked by make_request

    return run


def verdict_of(step: StepResult) -> str:
    """The verdict of a step that the judge made."""
    assert step.judged is not None
    return step.judged.verdict


def message_of(step: StepResult) -> str:
    """The sentence that goes with the verdict."""
    assert step.judged is not None
    return step.judged.message or ""
