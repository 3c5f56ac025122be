"""A failure is named when it happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

def test_good():
    pass

def test_bad():
    assert 1 + 1 == 3, "two lines,\\nof which one is shown"

@pytest.fixture
def broken():
    raise RuntimeError("no set-up")

def test_without(broken):
    pass

def test_last():
    import os
    os._exit(9)
"""


def test_a_failure_is_named_before_the_run_is_over(tmp_path: Path) -> None:
    """The run below is ended from inside, before pytest could sum up; what has failed by then is on the screen."""
    (tmp_path / "test_some.py").write_text(TESTS)
    options = ["-q", "-p", "tests.plugins.failures", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_some.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]

    assert done.returncode == 9
    assert len(lines) == 2, done.stdout
    assert re.match(r"FAILED test_some\.py::test_bad \(call, \d+\.", lines[0])
    assert " s, load " in lines[0]
    assert lines[0].endswith("AssertionError: two lines,")
    assert lines[1].startswith("FAILED test_some.py::test_without (setup, ")
    assert lines[1].endswith("RuntimeError: no set-up")
