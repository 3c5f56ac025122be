"""The stress run: what failed is counted, whatever the order, and a run that broke off is no success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Fails in the second run, whichever comes first in it; says which order it was run in.
TESTS = """
import pathlib

import pytest

RUNS = pathlib.Path(__file__).with_name("runs")


@pytest.mark.parametrize("number", range(8))
def test_good(number):
    with RUNS.open("a") as file:
        file.write(str(number))


def test_bad():
    with RUNS.open("a") as file:
        file.write("b")
    assert RUNS.read_text().count("b") < 2, "a | b"
"""


def _stress(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.stress", "--seed", "5", "--busy", "1", *options, "-p", "no:cacheprovider"],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_failures_are_counted_and_orders_differ(tmp_path: Path) -> None:
    """Two runs of nine tests: one fails in one of them; both ran all, in two orders that the seeds decide."""
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    done = _stress(tmp_path, "--runs", "2", "test_some.py")

    assert done.returncode == 1, done.stderr
    assert "| 1 of 2 | test_some.py::test_bad | AssertionError: a \\| b" in done.stdout
    runs = (tmp_path / "runs").read_text(encoding="utf-8")
    assert sorted(runs[:9]) == sorted(runs[9:]) == sorted("01234567b")
    assert runs[:9] != runs[9:]
