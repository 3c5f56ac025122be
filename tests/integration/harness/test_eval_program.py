"""tasks/problems/eval.py as a task author or a KernelBot runner starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

from .conftest import FIXTURES

EVAL = Path(__file__).parents[3] / "tasks" / "problems" / "eval.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task folder with a right submission."""
    shutil.copytree(FIXTURES / "tasks" / "add", tmp_path, dirs_exist_ok=True)
    shutil.copy(FIXTURES / "submissions" / "add_right.py", tmp_path / "submission.py")
    (tmp_path / "cases.txt").write_text("size: 8; seed: 1\nsize: 16; seed: 2\n")
    return tmp_path


def _run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, subprocess.CompletedProcess[str]]:
    """Exit code, what was written to POPCORN_FD, and the process."""
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, str(EVAL), *arguments],
            cwd=folder,
            env=os.environ | {"POPCORN_FD": str(write)} | environment,
            pass_fds=(write,),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(write)
    with os.fdopen(read) as stream:
        return done.returncode, stream.read(), done


def test_result_lines_and_exit_code(folder: Path) -> None:
    """The result lines of the protocol go to POPCORN_FD, and a passed mode exits with 0."""
    code, lines, done = _run(folder, "test", "cases.txt", POPCORN_SEED="99")

    assert code == 0, done.stderr
    assert lines.splitlines() == [
        "test-count: 2",
        "test.0.spec: size: 8; seed: 1",
        "test.0.status: pass",
        "test.1.spec: size: 16; seed: 2",
        "test.1.status: pass",
        "check: pass",
    ]
    assert "share one user" in done.stderr


def test_wrong_submission_exits_with_112(folder: Path) -> None:
    """A mode that does not pass says so in its lines, on stderr and by 112."""
    shutil.copy(FIXTURES / "submissions" / "add_wrong.py", folder / "submission.py")

    code, lines, done = _run(folder, "benchmark", "cases.txt")

    assert code == 112
    assert lines.splitlines()[-1] == "check: fail"
    assert "benchmark.0.status: fail" in lines
    assert "wrong_answer" in done.stderr


def test_cases_of_several_ranks(folder: Path) -> None:
    """A task author tries out a task of several ranks the same way; the cases say how many."""
    shutil.copytree(FIXTURES / "tasks" / "ring", folder, dirs_exist_ok=True)
    shutil.copy(FIXTURES / "submissions" / "ring_right.py", folder / "submission.py")
    (folder / "cases.txt").write_text("size: 8; world_size: 3; seed: 1\nsize: 16; world_size: 3; seed: 2\n")

    code, lines, done = _run(folder, "test", "cases.txt")

    assert code == 0, done.stderr
    assert lines.splitlines()[-1] == "check: pass"
    assert "test.1.status: pass" in lines


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "usage"),
        (("private", "cases.txt"), 2, "usage"),
        (("test", "missing.txt"), 113, "missing.txt"),
        (("test", "bad.txt"), 113, "line 1"),
        (("test", "empty.txt"), 113, "no cases"),
        (("test", "nobody.txt"), 113, "world_size is 0"),
    ],
)
def test_bad_arguments(folder: Path, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    """Wrong usage and bad cases files have their exit codes and a sentence."""
    (folder / "bad.txt").write_text("size 8\n")
    (folder / "empty.txt").write_text("\n")
    (folder / "nobody.txt").write_text("size: 8; world_size: 0\n")

    found, lines, done = _run(folder, *arguments)

    assert (found, lines) == (code, "")
    assert sentence in done.stderr
