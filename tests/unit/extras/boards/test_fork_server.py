"""Forks as processes: waiting for their ends, and what happens when the server dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

import pytest

from runner.extras.boards import fork_server
from runner.extras.boards.fork_server import ForkServerLost, ForkServers
from tasks.harness.local import Started
from tests.support.waiting import PATIENCE_S

_CODE = 7


def main() -> int:
    """What forks of this module do: print the server's process id, wait until their stdin is closed, end."""
    sys.stdout.write(f"{os.getppid()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    return _CODE


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    """Servers, closed afterwards."""
    with ForkServers() as made:
        yield made


def _start(servers: ForkServers, directory: Path, role: str = __name__) -> Started:
    return servers.start(
        role,
        cwd=directory,
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        keep=(),
    )


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def test_a_wait_without_timeout_has_no_limit(
    servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It outlasts the limit that servers have; with a timeout it ends, and the fork can be waited for again."""
    fork = _start(servers, tmp_path)
    monkeypatch.setattr(fork_server, "_PATIENCE_S", 0.01)
    with ThreadPoolExecutor() as pool, _pipe(fork.stdout):
        waiting = [pool.submit(fork.wait) for _ in range(2)]
        with pytest.raises(TimeoutError):
            waiting[0].result(timeout=0.2)
        with pytest.raises(subprocess.TimeoutExpired):
            fork.wait(timeout=0)
        _pipe(fork.stdin).close()
        assert [each.result(timeout=PATIENCE_S) for each in waiting] == [_CODE, _CODE]
    monkeypatch.undo()
    assert fork.wait() == _CODE


def test_forks_end_with_a_server_that_dies(servers: ForkServers, tmp_path: Path) -> None:
    """They are killed and reported as killed at once; the next order says that the server has ended."""
    forks = [_start(servers, tmp_path) for _ in range(2)]
    server = int(_pipe(forks[0].stdout).readline())
    _pipe(forks[1].stdout).readline()
    os.kill(server, signal.SIGKILL)
    for fork in forks:
        assert fork.wait(timeout=PATIENCE_S) == -signal.SIGKILL
        assert wait([_pipe(fork.stdout).fileno()], PATIENCE_S), "the fork still holds its standard output"
        assert _pipe(fork.stdout).read() == b""
        for pipe in (fork.stdin, fork.stdout):
            _pipe(pipe).close()
    with pytest.raises(ForkServerLost, match="has ended"):
        _start(servers, tmp_path)


def test_a_role_that_cannot_be_imported_ends_its_fork_alone(servers: ForkServers, tmp_path: Path) -> None:
    """The server goes on."""
    for role in ("tests.no_such_role", "tests.no_such_role_either"):
        fork = _start(servers, tmp_path, role=role)
        assert fork.wait(timeout=PATIENCE_S) == 1
        for pipe in (fork.stdin, fork.stdout):
            _pipe(pipe).close()
