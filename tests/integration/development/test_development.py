"""`make test` and `make bench` through the development stack: however a command ends, nothing of it goes on running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[3]
#: The stack's command with an engine that the stack does not run.
RUN = """
import sys
from pathlib import Path
from development import __main__ as development
from development.stack import Engine, Stack

Stack.start_engine = lambda self: Engine(url="unix:///theirs.sock", ours=False)
Stack.stop_engine = lambda self: None
development.state_directory = lambda name: (Path(sys.argv[1]) / name)
Path(sys.argv[1], "run").mkdir()
sys.exit(development.main(["run", "--", *sys.argv[2:]]))
"""
#: Leaves a process in a session of its own, writes its number, and says how it ended itself.
COMMAND = """
import pathlib, subprocess, sys, time
try:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    # The interrupt may come at once after that.
    pathlib.Path("left").write_text(str(left.pid))
    if sys.argv[1] == "waits":
        time.sleep(600)
except KeyboardInterrupt:
    pathlib.Path("ended").write_text("in order")
    sys.exit(2)
if sys.argv[1] == "orphans":
    # An orphan that ends: only the process of the stack can reap it.
    orphan = int(subprocess.check_output(["sh", "-c", "sleep 0.2 >&- & echo $!"]))
    until = time.monotonic() + 60
    while pathlib.Path(f"/proc/{orphan}").exists():
        if time.monotonic() > until:
            sys.exit(9)
        time.sleep(0.1)
sys.exit(7)
"""


def _start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(directory), sys.executable, "-c", COMMAND, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def _left(directory: Path) -> int:
    """The process that the command left running."""
    path = directory / "left"
    return int(wait_until(lambda: path.exists() and path.read_text(), "the command says what it left"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_command_in_order_and_what_it_left(tmp_path: Path, number: signal.Signals) -> None:
    """The command hears one interrupt and ends by itself; its orphan is ended; the exit code is an interrupt's."""
    with _start(tmp_path, "waits") as process:
        left = _left(tmp_path)
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, said
    assert (tmp_path / "ended").read_text() == "in order"
    assert "ended what the command had left running: python" in said
    assert not Path(f"/proc/{left}").exists()


def test_a_command_that_ends_by_itself_leaves_nothing_either(tmp_path: Path) -> None:
    """Its exit code is passed on."""
    with _start(tmp_path, "ends") as process:
        _, said = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 7, said
    assert not Path(f"/proc/{_left(tmp_path)}").exists()
