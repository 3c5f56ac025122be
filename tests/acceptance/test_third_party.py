"""KernelBot-format tasks with eval programs of their own, run unmodified; their rows are read key by key.

The expectations are the ecosystem's: what KernelBot's own tools, website and exports read from `leaderboard.runs`.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.base.model import Json, Verdict
from runner.store.records import JobView, RunView
from tests.plugins.live import ROOT, LiveRunner, live_runner

FIXTURES = ROOT / "tests" / "fixtures"
PYTHON_TASK = FIXTURES / "kernelbot_task"
CUDA_TASK = FIXTURES / "kernelbot_task_cu"

SYSTEM_KEYS = {"gpu", "device_count", "cpu", "runtime", "platform", "torch", "hostname", "runner"}
META_KEYS = {"stdout", "stderr", "success", "exit_code", "command", "duration"}
STATISTICS = {"spec", "runs", "mean", "std", "err", "best", "worst"}
COMPILATION_KEYS = {"nvcc_found", "nvcc_version", "success", "command", "stdout", "stderr", "exit_code"}


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon with both third-party boards."""
    with live_runner(create_database(migrated_template), build_timeout_s=90, warm_containers=0) as runner:
        runner.board(PYTHON_TASK, name="python", timeout_s=60, timed_calls=10)
        runner.board(CUDA_TASK, name="cuda", timeout_s=60, timed_calls=10)
        yield runner


def evaluate(live: LiveRunner, board: str, file: Path, mode: str) -> tuple[JobView, ...]:
    """Submit a file and wait; its jobs."""
    submission_id = live.store.submit(
        leaderboard=board,
        user_id="third-party",
        file_name=file.name,
        code=file.read_bytes(),
        mode=mode,
        gpu_types=["CPU"],
        user_name=None,
    )
    return live.wait(submission_id).jobs


def result_of(run: RunView) -> Json:
    """The flat result; every value is a string."""
    assert run.result is not None
    assert all(isinstance(value, str) for value in run.result.values())
    return run.result


def check_row(run: RunView) -> None:
    """What every row has."""
    assert run.meta is not None
    assert set(run.meta) == META_KEYS
    assert isinstance(run.meta["duration"], float)
    assert run.meta["success"] == (run.meta["exit_code"] in (0, 112))
    assert set(run.system_info) == SYSTEM_KEYS
    assert run.start_time is not None
    assert run.end_time is not None
    assert run.start_time <= run.end_time
    assert run.system_info["runner"]["assurance"] == {"correctness": "in_process", "timing": "claimed"}


def check_benchmarks(run: RunView, count: int) -> None:
    """A passed benchmark or leaderboard row: no status on success, all statistics as numbers in strings."""
    result = result_of(run)
    expected = {f"benchmark.{index}.{key}" for index in range(count) for key in STATISTICS}
    assert set(result) == {"benchmark-count", "check"} | expected
    assert (result["benchmark-count"], result["check"]) == (str(count), "pass")
    assert all(float(result[f"benchmark.{index}.mean"]) > 0 for index in range(count))


def test_a_ranked_submission_leaves_the_rows_of_both_chains(live: LiveRunner) -> None:
    """Public and secret: test, benchmark, leaderboard; scores on the leaderboard rows; runner is the GPU's name."""
    jobs = evaluate(live, "python", PYTHON_TASK / "solutions" / "correct" / "row_sums.py", "leaderboard")
    assert [(job.verdict, job.secret) for job in jobs] == [(Verdict.ACCEPTED, False), (Verdict.ACCEPTED, True)]
    for job in jobs:
        assert [run.mode for run in job.runs] == ["test", "benchmark", "leaderboard"]
        for run in job.runs:
            check_row(run)
            assert run.passed
            assert run.secret == job.secret
            assert run.compilation is None
        tests = result_of(job.runs[0])
        assert tests["test-count"] == "3"
        assert tests["test.0.status"] == "pass"
        assert tests["check"] == "pass"
        # The result pipe is drained while the program runs: what is larger than it neither blocks nor is cut. jsonb
        # reorders a case's keys when the task is stored, so the spec is found by its parts.
        assert tests["test.2.spec"].count("80000") == 1
        assert tests["test.2.message"] == "x" * 80_000
        for run in job.runs[1:]:
            check_benchmarks(run, 2)
        assert [run.score_s is None for run in job.runs] == [True, True, False]
        means = [float(result_of(job.runs[2])[f"benchmark.{index}.mean"]) / 1e9 for index in range(2)]
        assert job.runs[2].score_s == pytest.approx((means[0] * means[1]) ** 0.5, rel=1e-6)
    assert [(line.user_id, line.gpu_type) for line in live.store.ranking("python", None)] == [("third-party", "CPU")]


def test_a_wrong_submission_stops_its_chain(live: LiveRunner) -> None:
    """A row, check fail, exit code 112 (a success of the program), no score; the secret chain never runs."""
    before = live.store.ranking("python", None)
    wrong = PYTHON_TASK / "solutions" / "wrong" / "skips_last_column.py"
    public, secret = evaluate(live, "python", wrong, "leaderboard")
    assert (public.verdict, secret.verdict) == (Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER)
    assert (secret.secret, secret.attempt, secret.runs) == (True, 0, ())
    (run,) = public.runs
    check_row(run)
    assert (run.mode, run.passed, run.score_s) == ("test", False, None)
    result = result_of(run)
    assert result["check"] == "fail"
    assert result["test.0.status"] == "fail"
    assert result["test.0.error"]
    assert run.meta is not None
    assert (run.meta["exit_code"], run.meta["success"]) == (112, True)
    assert live.store.ranking("python", None) == before


def test_benchmark_and_profile_modes(live: LiveRunner) -> None:
    """Benchmark leaves one row; profile one row per benchmark line, each with its own report."""
    solution = PYTHON_TASK / "solutions" / "correct" / "row_sums.py"
    (job,) = evaluate(live, "python", solution, "benchmark")
    assert [run.mode for run in job.runs] == ["benchmark"]
    check_benchmarks(job.runs[0], 2)
    (job,) = evaluate(live, "python", solution, "profile")
    assert job.verdict is Verdict.ACCEPTED
    assert [run.mode for run in job.runs] == ["profile.0", "profile.1"]
    for run in job.runs:
        check_row(run)
        result = result_of(run)
        assert set(result) == {"benchmark-count", "benchmark.0.spec", "benchmark.0.report", "check"}
        assert b"aten::" in base64.b64decode(result["benchmark.0.report"])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="lang cu needs nvcc on the host, this one has none")
def test_a_cuda_task_is_compiled_and_run(live: LiveRunner) -> None:
    """Nvcc's facts stand in `compilation`; ranking_by last sends one benchmark; the sources are gone when it runs."""
    jobs = evaluate(live, "cuda", CUDA_TASK / "solutions" / "correct" / "running_sums.cuh", "leaderboard")
    for job in jobs:
        assert job.verdict is Verdict.ACCEPTED, job.error
        for run in job.runs:
            check_row(run)
            assert run.compilation is not None
            assert set(run.compilation) == COMPILATION_KEYS
            assert run.compilation["nvcc_found"] is True
            assert "release" in run.compilation["nvcc_version"]
            assert run.compilation["success"] is True
        assert result_of(job.runs[2])["benchmark-count"] == "1"
        assert job.runs[2].score_s is not None
    (job,) = evaluate(live, "cuda", CUDA_TASK / "solutions" / "wrong" / "exclusive.cuh", "test")
    assert job.verdict is Verdict.WRONG_ANSWER


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="lang cu needs nvcc on the host, this one has none")
def test_a_cuda_source_that_does_not_compile(live: LiveRunner, tmp_path: Path) -> None:
    """A compile error, with the compiler's first error as its sentence; no row, nothing retried."""
    broken = tmp_path / "broken.cuh"
    broken.write_text("this is no C++\n", encoding="utf-8")
    (job,) = evaluate(live, "cuda", broken, "test")
    assert job.verdict is Verdict.COMPILE_ERROR
    assert "error" in (job.error or "")
    assert (job.runs, job.attempt) == ((), 1)


def test_a_stored_task_that_does_not_parse_is_invalid(live: LiveRunner) -> None:
    """A board whose task was damaged in the database gives a clear sentence, loses nothing and stops nobody."""
    view = live.store.board("python")
    live.store.create_board(
        name="damaged",
        deadline=view.deadline,
        task={**view.task, "ranking_by": "fastest"},
        description="",
        gpus=("CPU",),
        templates={},
        extra=None,
    )
    (job,) = evaluate(live, "damaged", PYTHON_TASK / "solutions" / "correct" / "row_sums.py", "test")
    assert job.verdict is Verdict.INVALID
    assert "ranking_by" in (job.error or "")
    assert "fastest" in json.dumps(job.error)
