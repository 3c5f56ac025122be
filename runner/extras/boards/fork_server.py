"""Judges and workers for `tasks.harness.local` without the wait.

They are forks of a process that has imported torch and the judge's code, for many small evaluations in a row. A fork
has a process and memory of its own, as a fresh interpreter has, and saves the import: one to two seconds of a core.

The server is this module as a program. An order is one packet on a socket: a JSON object {role, cwd, env, keep, first}
with the descriptors of a pipe, of stdin, stdout, stderr and those whose numbers `keep` names. The server writes two
lines to the pipe: the fork's pid, and its exit code when it has ended. It ends with the socket. Its forks end with it,
however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from sandbox.inside.template import open_streams
from tasks import harness
from tasks.harness.roles import MODULES

_PROGRAM = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv[1], run_name='__main__')"
_LINE_FD = "KR_FORK_SERVER_FD"
#: Longest order; an environment is a few kilobytes.
_ORDER_BYTES = 1 << 18
_MOST_DESCRIPTORS = 16
#: Above every number that is asked for: descriptors are copied there before they get their numbers.
_COPIED_FROM = 600
#: How long the server may take to import, to make a fork, and to end. A busy host needs much of it.
_PATIENCE_S = 600.0
_PR_SET_PDEATHSIG = 1
#: Python code after which a process is killed when its parent ends, however that ends.
END_WITH_PARENT = f"import ctypes; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d})"


class ForkServerLost(Exception):
    """The server cannot fork: it has ended, or does not answer."""


class _Fork:
    """A forked process, as `local.Started` has it. Thread-safe."""

    def __init__(self, ours: Sequence[IO[bytes] | None], pipe: int) -> None:
        """`ours`: ends of stdin, stdout and stderr; `pipe`: see the module."""
        self.stdin, self.stdout, self.stderr = ours
        self._pipe = pipe
        weakref.finalize(self, os.close, pipe)
        self._reading = threading.Lock()
        self._code: int | None = None
        pid = self._line() if self._readable(_PATIENCE_S) else b""
        if not pid:
            raise ForkServerLost("the fork server has ended, or does not answer (its stderr, which is ours, says why)")
        self.pid = int(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; see `local.Started`. TimeoutExpired: it has not ended after `timeout` seconds."""
        if self._code is None and not self._readable(timeout):
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        with self._reading:
            if self._code is None:
                # Without a line the kernel has killed it, since the server has ended: see `_become`.
                self._code = int(self._line() or -signal.SIGKILL)
        return self._code

    def _readable(self, timeout_s: float | None) -> bool:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        return bool(poller.poll(None if timeout_s is None else timeout_s * 1e3))

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and (more := os.read(self._pipe, 1)):
            line += more
        return line


class ForkServers:
    """The server, started when it is first needed. Close it, or use it as a context manager. Thread-safe."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None

    def _line(self) -> socket.socket:
        with self._starting:
            if self._server is None:
                line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                root = Path(harness.__file__).resolve().parents[2]
                with theirs:
                    process = subprocess.Popen(
                        [sys.executable, "-P", "-c", _PROGRAM, str(root), __file__],
                        env={**os.environ, _LINE_FD: str(theirs.fileno())},
                        pass_fds=(theirs.fileno(),),
                    )
                self._server = line, process
            return self._server[0]

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
            ForkServerLost: see the class.
        """
        order = {"role": role, "cwd": str(cwd), "env": dict(env), "keep": list(keep), "first": first}
        line = self._line()
        pipe, theirs = os.pipe()
        given, ours, pipe_ends = [theirs], [], [theirs]
        for number, target in enumerate((stdin, stdout, stderr)):
            stream: IO[bytes] | None = None
            if target == subprocess.PIPE:
                read, write = os.pipe()
                its, stream = (read, os.fdopen(write, "wb")) if number == 0 else (write, os.fdopen(read, "rb"))
                pipe_ends.append(its)
            elif target == subprocess.DEVNULL:
                its = os.open(os.devnull, os.O_RDWR)
                pipe_ends.append(its)
            else:
                its = target
            given.append(its)
            ours.append(stream)
        # Of a server that has ended the pipe tells.
        with contextlib.suppress(ConnectionError):
            socket.send_fds(line, [json.dumps(order).encode()], [*given, *keep])
        for descriptor in pipe_ends:
            os.close(descriptor)
        try:
            return _Fork(ours, pipe)
        except ForkServerLost:
            for each in ours:
                if each is not None:
                    each.close()
            raise

    def close(self) -> None:
        """End everything."""
        if self._server is not None:
            (line, process), self._server = self._server, None
            line.close()
            process.wait(timeout=_PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        os.environ.clear()
        os.environ.update(order["env"])
        open_streams()
        sys.argv = ["-c"]
        main = importlib.import_module(MODULES.get(order["role"], order["role"])).main
        if order["first"] is not None:
            where, arguments = order["first"]
            module, _, name = where.partition(":")
            getattr(importlib.import_module(module), name)(arguments)
        code = main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:  # noqa: BLE001 a fork must never return into the server's loop
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(line: socket.socket) -> None:
    """Fork on order, report ends, until the other side is gone."""
    poller = select.poll()
    poller.register(line, select.POLLIN)
    #: By the descriptor of a fork: its pid and the pipe for its exit code.
    forks: dict[int, tuple[int, int]] = {}
    server = os.getpid()
    while True:
        for ready, _ in poller.poll():
            if ready != line.fileno():
                poller.unregister(ready)
                pid, pipe = forks.pop(ready)
                os.close(ready)
                _say(pipe, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(pipe)
                continue
            data, received, _, _ = socket.recv_fds(line, _ORDER_BYTES, _MOST_DESCRIPTORS)
            if not data:
                return
            pipe, *given = received
            pid = os.fork()
            if pid == 0:
                _become(json.loads(data), given, server)
            for descriptor in given:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            forks[watched] = pid, pipe
            poller.register(watched, select.POLLIN)
            _say(pipe, pid)


def _say(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, f"{number}\n".encode())


if __name__ == "__main__":
    connection = socket.socket(fileno=int(os.environ.pop(_LINE_FD)))
    # As in a container. What the judge's own code needs beside is most of what a worker's does.
    for module in ("tasks.harness.preload", MODULES["judge"]):
        importlib.import_module(module)
    _serve(connection)
