"""Tests side by side: who wants to be alone is, nothing is lost, and what fails fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.plugins.exclusive_tests import _Roll
from tests.plugins.live import ROOT

#: Each running test holds a file shared; one that must be alone holds it exclusively.
INNER = """
import fcntl, os
import pytest

@pytest.fixture(autouse=True)
def here(request):
    kind = fcntl.LOCK_SH if request.node.get_closest_marker("alone") is None else fcntl.LOCK_EX
    with open("here", "a") as file:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        yield
        fcntl.flock(file, fcntl.LOCK_UN)

@pytest.mark.parametrize("number", range(300))
def test_crowd(number):
    os.sched_yield()

@pytest.mark.alone
@pytest.mark.parametrize("number", range(30))
def test_alone(number):
    os.sched_yield()
"""

#: One judge at a time, by the mark or by the fixture; others run beside it.
JUDGING = """
import fcntl, os
import pytest

@pytest.fixture
def processes():
    with open("judge", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        fcntl.flock(file, fcntl.LOCK_UN)

@pytest.mark.parametrize("number", range(150))
def test_forked(processes, number):
    os.sched_yield()

@pytest.mark.judging
@pytest.mark.parametrize("number", range(150))
def test_marked(request, number):
    with open("judge", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.sched_yield()

@pytest.mark.parametrize("number", range(30))
def test_crowd(number):
    os.sched_yield()
"""


def run(directory: Path, source: str) -> subprocess.CompletedProcess[str]:
    """These tests, by three workers."""
    (directory / "test_inner.py").write_text(source, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", "-p", "tests.plugins.exclusive_tests"],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_who_wants_to_be_alone_is(tmp_path: Path) -> None:
    """A marked test runs beside no other; an unmarked one runs beside no marked one."""
    done = run(tmp_path, INNER)
    assert done.returncode == 0, done.stdout
    assert "330 passed" in done.stdout


def test_one_judge_at_a_time(tmp_path: Path) -> None:
    """Whether a test says so by its fixture or by its mark."""
    done = run(tmp_path, JUDGING)
    assert done.returncode == 0, done.stdout
    assert "330 passed" in done.stdout


def test_a_failure_and_a_lost_worker_are_failures(tmp_path: Path) -> None:
    """The exit code and the words are those of pytest; who held the turn when its worker died holds it no longer."""
    source = "".join(
        f"import os, pytest\n@pytest.mark.alone\ndef test_{name}():\n    {body}\n"
        for name, body in (("dies", "os._exit(7)"), ("fails", "assert 1 == 2"), ("is_right", "pass"))
    )
    done = run(tmp_path, source)
    assert done.returncode == 1, done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "crashed while running 'test_inner.py::test_dies'" in done.stdout
    assert "2 failed, 1 passed" in done.stdout


@pytest.mark.parametrize(("reported", "status"), [(("a", "b"), 0), (("a",), 3)])
def test_a_test_that_did_not_run_fails_the_run(reported: tuple[str, ...], status: int) -> None:
    """All that the workers found has to be reported."""
    roll = _Roll()
    roll.pytest_xdist_node_collection_finished(ids=["a", "b"])
    for nodeid in reported:
        roll.pytest_runtest_logreport(cast("pytest.TestReport", SimpleNamespace(nodeid=nodeid)))
    session = SimpleNamespace(exitstatus=0)
    roll.pytest_sessionfinish(cast("pytest.Session", session), 0)
    roll.pytest_unconfigure()
    assert session.exitstatus == status
