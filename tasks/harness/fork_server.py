"""Judges and workers for `local` without the wait: forks of processes that have imported torch and their own code.

For many small evaluations in a row. A fork has a process and memory of its own, as a fresh interpreter has; it saves
the import, one to two seconds of a core for each.

`ForkServers` is the caller's side. A server is this module as a program: it imports what a role runs, then forks on
order. An order is one packet on a socket: a JSON object {role, cwd, env, keep, first} with the descriptors stdin,
stdout, stderr and those whose numbers `keep` names. The answer is {pid}; when a fork has ended, {pid, code}. A server
ends with the socket. Its forks end with it, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NoReturn, Self

#: Role of a process -> the module with its `main`.
MODULES: Final = {
    "judge": "tasks.harness.judge.main",
    "worker": "tasks.harness.worker.main",
    "rank_checker": "tasks.harness.judge.rank_checker",
}
#: Roles whose processes are forks of another role's server, which has imported nearly all that they need.
_SERVED_BY: Final = {"rank_checker": "judge"}
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('tasks.harness.fork_server', run_name='__main__')"
)
_LINE_FD = "KR_FORK_SERVER_FD"
#: Longest order; an environment is a few kilobytes.
_ORDER_BYTES = 1 << 18
_MOST_DESCRIPTORS = 16
#: Above every number that is asked for: descriptors are copied there before they get their numbers.
_COPIED_FROM = 600
#: How long a server may take to import what its role runs, to make a fork, and to end. A busy host needs much of it.
_PATIENCE_S = 600.0
_PR_SET_PDEATHSIG = 1


class ForkServerLost(Exception):
    """A server cannot fork: it has ended, or does not answer."""


@dataclass(kw_only=True)
class _Fork:
    """A forked process, as `local.Started` has it. Thread-safe."""

    pid: int
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None
    _code: int | None = field(default=None, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def end(self, code: int) -> None:
        """Note how it ended."""
        self._code = code
        self._ended.set()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; see `local.Started`.

        Args:
            timeout: in seconds; None waits without limit.

        Raises:
            TimeoutExpired: it has not ended by then.
        """
        self._ended.wait(timeout)
        if self._code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        return self._code


class _Server:
    """One role's process. Thread-safe."""

    def __init__(self, role: str) -> None:
        self._line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(_ROOT), role],
            env={**os.environ, _LINE_FD: str(other.fileno())},
            pass_fds=(other.fileno(),),
        )
        other.close()
        self._role = role
        self._lock = threading.Lock()
        #: What an order brought about; None: the server has ended.
        self._answers: queue.SimpleQueue[_Fork | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name=f"fork server {role}", daemon=True).start()

    def fork(self, order: Mapping[str, object], descriptors: Sequence[int]) -> _Fork:
        """A new fork with these descriptors.

        Raises:
            ForkServerLost: the server has ended, or did not answer for `_PATIENCE_S`.
        """
        with self._lock:
            try:
                socket.send_fds(self._line, [json.dumps(order).encode()], list(descriptors))
                fork = self._answers.get(timeout=_PATIENCE_S)
            except queue.Empty:
                raise ForkServerLost(f"the {self._role} fork server did not answer for {_PATIENCE_S:g} s") from None
            except ConnectionError:
                fork = None
            if fork is None:
                raise ForkServerLost(f"the {self._role} fork server has ended (its stderr, which is ours, says why)")
            return fork

    def close(self) -> None:
        """End it and its forks."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._process.wait(timeout=_PATIENCE_S)
        self._line.close()

    def _listen(self) -> None:
        forks: dict[int, _Fork] = {}
        with contextlib.suppress(ConnectionError):
            while data := self._line.recv(_ORDER_BYTES):
                message = json.loads(data)
                pid = message["pid"]
                if "code" in message:
                    forks.pop(pid).end(message["code"])
                else:
                    forks[pid] = _Fork(pid=pid)
                    self._answers.put(forks[pid])
        # The kernel has killed them: see `_become`.
        for fork in forks.values():
            fork.end(-signal.SIGKILL)
        self._answers.put(None)


class ForkServers:
    """One server for each role, started when it is first needed. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}
        self._starting = threading.Lock()

    def start(
        self,
        role: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        keep: Sequence[int],
        first: tuple[str, Sequence[str]] | None = None,
    ) -> _Fork:
        """A process of a role; see `local.Start`.

        `role`: of `MODULES`, or a module with a function `main`. `first`: a function, as `module:name`, that the fork
        calls with a list of texts before it runs.

        Raises:
            ForkServerLost: the role's server has ended.
        """
        given: list[int] = []
        ours: list[IO[bytes] | None] = []
        made: list[int] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if wanted >= 0:
                given.append(wanted)
                ours.append(None)
                continue
            if wanted == subprocess.DEVNULL:
                given.append(os.open(os.devnull, os.O_RDWR))
                ours.append(None)
            else:
                read, write = os.pipe()
                given.append(read if number == 0 else write)
                ours.append(os.fdopen(write, "wb") if number == 0 else os.fdopen(read, "rb"))
            made.append(given[-1])
        order = {"role": role, "cwd": str(cwd), "env": dict(env), "keep": list(keep), "first": first}
        try:
            with self._starting:
                serving = _SERVED_BY.get(role, role)
                if serving not in self._servers:
                    self._servers[serving] = _Server(serving)
            child = self._servers[serving].fork(order, (*given, *keep))
        except ForkServerLost:
            for stream in ours:
                if stream is not None:
                    stream.close()
            raise
        finally:
            for descriptor in made:
                os.close(descriptor)
        child.stdin, child.stdout, child.stderr = ours
        return child

    def close(self) -> None:
        """End everything."""
        for server in self._servers.values():
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load(role: str) -> Callable[[], int]:
    """Import what a role runs, as its own interpreter would; its entry point."""
    # The worker's module leaves the judge's core alone where a judge waits for it; forks inherit that.
    if role == "worker":
        os.environ["KR_JUDGE_FD"] = "-1"
    try:
        main: Callable[[], int] = importlib.import_module(MODULES.get(role, role)).main
    finally:
        os.environ.pop("KR_JUDGE_FD", None)
    return main


def _become(order: Mapping[str, Any], descriptors: Sequence[int], server: int) -> NoReturn:
    """In a fork: take the place that was asked for, and run. `server`: the server's pid."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os.kill(os.getpid(), signal.SIGKILL)
        os.setsid()
        copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _COPIED_FROM) for descriptor in descriptors]
        os.closerange(0, _COPIED_FROM)
        for source, target in zip(copies, (0, 1, 2, *order["keep"]), strict=True):
            os.dup2(source, target, inheritable=True)
        os.closerange(_COPIED_FROM, _COPIED_FROM + 2 * _MOST_DESCRIPTORS)
        os.chdir(order["cwd"])
        main = _load(order["role"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = ["-c"]
        if order["first"] is not None:
            where, arguments = order["first"]
            module, _, name = where.partition(":")
            getattr(importlib.import_module(module), name)(arguments)
        code = main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def _serve(line: socket.socket) -> None:
    """Fork on order, report ends, until the other side is gone."""
    poller = select.poll()
    poller.register(line, select.POLLIN)
    children: dict[int, int] = {}
    while True:
        for ready, _ in poller.poll():
            if ready != line.fileno():
                pid = children.pop(ready)
                poller.unregister(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                line.send(json.dumps({"pid": pid, "code": code}).encode())
                continue
            data, received, _, _ = socket.recv_fds(line, _ORDER_BYTES, _MOST_DESCRIPTORS)
            if not data:
                return
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                line.close()
                _become(json.loads(data), received, server)
            for descriptor in received:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            children[watched] = pid
            poller.register(watched, select.POLLIN)
            line.send(json.dumps({"pid": pid}).encode())


if __name__ == "__main__":
    connection = socket.socket(fileno=int(os.environ.pop(_LINE_FD)))
    _load(sys.argv[1])
    _serve(connection)
