"""Forks as processes: waiting for their ends, and what happens when the server dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def _end_alone(servers: ForkServers, directory: Path) -> None:
    """A role that cannot be imported ends its fork; the server goes on."""
    for role in ("tests.no_such_role", "tests.no_such_role_either"):
        fork = _start(servers, directory, role=role)
        assert fork.wait(timeout=PATIENCE_S) == 1
        for pipe in (fork.stdin, fork.stdout):
            _pipe(pipe).close()


def _wait_without_limit(fork: Started) -> None:
    """It outlasts the limit that servers have; with a timeout it ends, and the fork can be waited for again."""
    with (
        ThreadPoolExecutor() as pool,
        _pipe(fork.stdout),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(fork_server, "_PATIENCE_S", 0.01)
        waiting = [pool.submit(fork.wait) for _ in range(2)]
        with pytest.raises(TimeoutError):
            waiting[0].result(timeout=0.2)
        with pytest.raises(subprocess.TimeoutExpired):
            fork.wait(timeout=0)
        _pipe(fork.stdin).close()
        assert [each.result(timeout=PATIENCE_S) for each in waiting] == [_CODE, _CODE]
    assert fork.wait() == _CODE


def test_forks_and_their_server(tmp_path: Path) -> None:
    """One that ends leaves the server; when that dies, its forks are killed, and reported as killed, at once."""
    with ForkServers() as servers:
        _end_alone(servers, tmp_path)
        _wait_without_limit(_start(servers, tmp_path))
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
