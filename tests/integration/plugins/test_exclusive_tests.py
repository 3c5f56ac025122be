"""Tests side by side: what fails fails, and what was not run fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.plugins.exclusive_tests import _Roll
from tests.plugins.live import ROOT


def test_a_failure_and_a_lost_worker_are_failures(tmp_path: Path) -> None:
    """The exit code and the words are those of pytest; who held the turn when its worker died holds it no longer."""
    source = "".join(
        f"import os, pytest\n@pytest.mark.alone\ndef test_{name}():\n    {body}\n"
        for name, body in (("dies", "os._exit(7)"), ("fails", "assert 1 == 2"), ("is_right", "pass"))
    )
    (tmp_path / "test_inner.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", "-p", "tests.plugins.exclusive_tests"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
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
