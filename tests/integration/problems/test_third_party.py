"""The third party's task folders that other tests evaluate: they load, and by themselves they keep the protocol."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from runner.task_format import load_folder, spec_line
from runner.task_format.model import Harness, Lang, Ranking
from tests.support.waiting import PATIENCE_S

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PY, CU = FIXTURES / "kernelbot_task", FIXTURES / "kernelbot_task_cu"
STATISTICS = ("runs", "mean", "std", "err", "best", "worst")


def unpack(folder: Path, directory: Path, solution: str) -> list[str]:
    """Write a task's files beside a solution and its cases file; returns the lines of the cases."""
    task = load_folder(folder).task
    for name, text in task.files.items():
        (directory / name).write_text(text)
    (directory / task.submission_name).write_text((folder / "solutions" / solution).read_text())
    lines = [spec_line(case) for case in (*task.tests, *task.benchmarks[:1])]
    (directory / "cases.txt").write_text("\n".join(lines) + "\n")
    return lines


def run(argv: Sequence[str], directory: Path, *, seed: int | None = None) -> tuple[int, Mapping[str, str]]:
    """Run an eval program; its exit code and its report, drained while it runs."""
    reader, writer = os.pipe()
    received: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reader, "rb") as file:
            received.append(file.read())

    thread = threading.Thread(target=drain)
    thread.start()
    environment = {"POPCORN_FD": str(writer), "PATH": os.defpath, "HOME": str(directory)}
    if seed is not None:
        environment["POPCORN_SEED"] = str(seed)
    try:
        done = subprocess.run(argv, cwd=directory, env=environment, pass_fds=(writer,), timeout=PATIENCE_S, check=False)
    finally:
        os.close(writer)
        thread.join()
    pairs = (line.partition(":") for line in received[0].decode().splitlines())
    return done.returncode, {key.strip(): value.strip() for key, _, value in pairs}


def test_the_python_task_loads() -> None:
    """It has its own program, and one test whose message alone is more than a pipe's 64 KiB."""
    task = load_folder(PY).task
    assert (task.lang, task.harness, task.ranking_by) == (Lang.PY, Harness.PROGRAM, Ranking.GEOM)
    assert max(int(str(case["remark"])) for case in task.tests) > 64 << 10


@pytest.mark.parametrize("folder", [PY, CU], ids=["py", "cu"])
def test_it_uses_nothing_of_ours(folder: Path) -> None:
    """A third party does not know this project."""
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text()
            assert not any(word in text for word in ("kernel_runner", "kernel-runner", "tasks.", "sandbox", "runner."))


def test_the_python_program_tests(tmp_path: Path) -> None:
    """A right submission passes all cases under a global seed, and the long message arrives whole."""
    lines = unpack(PY, tmp_path, "correct/row_sums.py")
    code, report = run([sys.executable, "eval.py", "test", "cases.txt"], tmp_path, seed=77)
    assert code == 0
    assert report["check"] == "pass"
    assert report["test-count"] == str(len(lines))
    assert [report[f"test.{index}.spec"] for index in range(len(lines))] == lines
    assert all(report[f"test.{index}.status"] == "pass" for index in range(len(lines)))
    assert report["test.2.message"] == "x" * 80000


def test_the_python_program_fails_a_wrong_submission(tmp_path: Path) -> None:
    """A wrong one fails with an error per case and exit code 112."""
    lines = unpack(PY, tmp_path, "wrong/skips_last_column.py")
    code, report = run([sys.executable, "eval.py", "test", "cases.txt"], tmp_path)
    assert code == 112
    assert report["check"] == "fail"
    assert all("values differ" in report[f"test.{index}.error"] for index in range(len(lines)))


def test_the_python_program_ranks(tmp_path: Path) -> None:
    """Leaderboard mode reports nanoseconds per case."""
    lines = unpack(PY, tmp_path, "correct/row_sums.py")
    code, report = run([sys.executable, "eval.py", "leaderboard", "cases.txt"], tmp_path, seed=77)
    assert (code, report["check"]) == (0, "pass")
    assert report["benchmark-count"] == str(len(lines))
    for index in range(len(lines)):
        numbers = {name: float(report[f"benchmark.{index}.{name}"]) for name in STATISTICS}
        assert 3 <= numbers["runs"] <= 100
        assert 0 < numbers["best"] <= numbers["mean"] <= numbers["worst"]


@pytest.fixture(scope="module")
def cu_programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The C++ program with each solution, compiled by the host compiler (it holds no device code)."""
    programs = {}
    for solution in ("correct/running_sums.cuh", "wrong/exclusive.cuh"):
        directory = tmp_path_factory.mktemp("cu")
        unpack(CU, directory, solution)
        argv = ["c++", "--std=c++20", "-O1", "-DMAX_REPEATS=20", "-x", "c++", "eval.cu", "-o", "eval.out"]
        subprocess.run(argv, cwd=directory, timeout=PATIENCE_S, check=True)
        programs[solution.partition("/")[0]] = directory
    return programs


def test_the_cu_task_loads() -> None:
    """It compiles one source, with a define."""
    task = load_folder(CU).task
    assert (task.lang, task.harness, task.submission_name) == (Lang.CU, Harness.PROGRAM, "submission.cuh")


def test_the_cu_program_judges(cu_programs: Mapping[str, Path]) -> None:
    """Right passes, wrong fails with 112, in the modes it knows; profile and a missing descriptor have their codes."""
    for mode in ("test", "benchmark", "leaderboard"):
        code, report = run(["./eval.out", mode, "cases.txt"], cu_programs["correct"])
        assert (code, report["check"]) == (0, "pass"), mode
        code, report = run(["./eval.out", mode, "cases.txt"], cu_programs["wrong"])
        assert (code, report["check"]) == (112, "fail"), mode
    assert run(["./eval.out", "profile", "cases.txt"], cu_programs["correct"])[0] == 2
    done = subprocess.run(
        ["./eval.out", "test", "cases.txt"], cwd=cu_programs["correct"], env={}, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 111
