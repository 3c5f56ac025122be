"""`watch` in a terminal, and as one frame for a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from runner.base.model import Progress
from runner.store import HostRecord, Store
from tests.integration.cli.conftest import Call
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def busy(cli: Call, board: str, submission_file: Path, store: Store) -> Store:
    """A host with one slot, a job on it and one that waits."""
    store.register_host(
        HostRecord(
            name="node1",
            version="1",
            slots=[{"name": "cpu0", "gpu_type": "CPU", "cpus": [0], "devices": []}],
            instance="i",
            gpu_types=["CPU"],
        )
    )
    for user in ("alice", "bob"):
        assert cli("submit", submission_file, "--leaderboard", board, "--mode", "test", "--user", user).code == 0
    (job,) = store.claim(host="node1", slots={"CPU": 1}, lease_s=600.0, at_most=None, instance="i").jobs
    store.progress(job, Progress(phase="test", done=1, total=2, slot="cpu0"))
    return store


def test_one_frame_for_a_pipe(cli: Call, busy: Store) -> None:
    """What runs where, what waits; complete, and without any terminal's codes."""
    said = cli("watch", "--once")
    assert said.code == 0
    assert re.search(r"hosts 1 of 1 up   slots 1   running 1   waiting 1 ", said.out)
    assert re.search(r"node1 +up +0 +cpu0 +CPU +1 echo +alice +test, test 1/2 +\d+ \w+", said.out)
    assert re.search(r"^CPU +1 +\d+ \w+", said.out, flags=re.MULTILINE)
    assert "no verdicts yet" in said.out
    assert "\x1b" not in said.out
    assert busy.running(limit=10)[0].host == "node1"


def test_an_operators_role_suffices(call: Call, busy: Store, database_url: str) -> None:
    """For the screen and for a submission's story: no right to anybody's code is needed."""
    assert busy is not None
    url = make_conninfo(database_url, options="-c role=runner_operator")
    watched = call("watch", "--once", database=url)
    assert (watched.code, "alice" in watched.out) == (0, True), watched.err
    told = call("logs", 1, database=url)
    assert (told.code, "submitted" in told.out) == (0, True), told.err


def test_without_a_terminal_it_names_the_way(cli: Call) -> None:
    """A pipe has no screen."""
    said = cli("watch")
    assert said.code == 2
    assert "`kernel-runner watch --once` prints one frame" in said.err


class Terminal:
    """A terminal of 120 columns with `kernel-runner watch` in it."""

    def __init__(self, database_url: str) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (30, 120))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            # Its own terminal, so that Ctrl-C reaches it.
            ["setsid", "--ctty", sys.executable, "-m", "runner.cli", "watch", "--every", "0.2"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
                "DATABASE_URL": database_url,
                "TERM": "xterm-256color",
            },
        )
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        """Read until the screen has shown something since the last time."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown, flags=re.DOTALL):
            assert time.monotonic() < deadline, f"never shown: {pattern}; last: {self.shown[-3000:]!r}"
            ready, _, _ = select.select([self._master], [], [], 1.0)
            if ready:
                self.shown += os.read(self._master, 1 << 16).decode("utf-8", errors="replace")
        self.shown = ""

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Wait until it has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            # Who does not read holds it up.
            if select.select([self._master], [], [], 0.1)[0]:
                self.shown += os.read(self._master, 1 << 16).decode("utf-8", errors="replace")
        return int(self.process.returncode)

    def settings(self) -> list[object]:
        """How the terminal is set now."""
        return list(termios.tcgetattr(self._slave))

    def close(self) -> None:
        """Hang up."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def terminal(database_url: str, busy: Store) -> Iterator[Terminal]:
    """A terminal with the screen in it."""
    assert busy is not None
    made = Terminal(database_url)
    yield made
    made.close()


def test_the_screen_follows_until_ctrl_c(terminal: Terminal, cli: Call, board: str, submission_file: Path) -> None:
    """News come by themselves; Ctrl-C leaves the terminal as it was."""
    terminal.wait_for(r"alice.*test, test 1/2")
    assert cli("submit", submission_file, "--leaderboard", board, "--mode", "test", "--user", "carol").code == 0
    terminal.wait_for(r"waiting 2 ")
    terminal.press("\x03")
    assert terminal.end() == 130
    assert terminal.settings() == terminal.before
