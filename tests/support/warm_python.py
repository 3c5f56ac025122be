"""A Python that has imported torch: `python [-P] -c CODE ARGUMENT...` without the second that the import takes.

For tests of programs that start such interpreters, where the start itself is not what is shown. `warm_python` makes an
executable file that may be named in the interpreter's place. It passes arguments, environment, working directory and
descriptors on to a server, waits, and ends as the server's fork has ended; signals that it gets are passed on, and the
fork and its process group die with it. Each run is a process of its own, forked from one that has imported torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

_MOST_DESCRIPTORS = 64
#: Bytes of an order; an environment is a few kilobytes.
_MOST_BYTES = 1 << 20
#: Descriptors are parked from here on before they get the numbers that were asked for.
_PARKED_FROM = 600
_CLIENT = """\
#!{python} -ISs
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({path!r})
open_now = [int(name) for name in os.listdir("/proc/self/fd")]
numbers = [number for number in open_now if number != line.fileno() and os.path.exists(f"/proc/self/fd/{{number}}")]
order = {{"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "numbers": numbers}}
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: line.send(b"%d" % number))
socket.send_fds(line, [json.dumps(order).encode()], numbers)
code = int(line.recv(64) or b"-9")
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -9 else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextmanager
def warm_python(python: Path, folder: Path) -> Iterator[Path]:
    """An executable that stands for `python`, whose environment has torch. `folder` is empty, and its path is short."""
    path = folder / "line"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(16)
    client = folder / "python"
    client.write_text(_CLIENT.format(python=python, path=str(path)), encoding="utf-8")
    client.chmod(0o755)
    with listener:
        server = subprocess.Popen(
            [str(python), "-P", __file__, str(listener.fileno())],
            pass_fds=(listener.fileno(),),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            # An interrupt of the tests is theirs alone.
            start_new_session=True,
        )
    try:
        yield client
    finally:
        server.communicate()


class _Runs:
    """The server: forks for each client, until its stdin is closed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        #: Line to the client and watched descriptor -> the fork.
        self._pids: dict[Any, int] = {}
        self._lines: dict[int, socket.socket] = {}

    def serve(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    for pid in self._lines:
                        _kill(pid, signal.SIGKILL)
                    return
                if key.fileobj is self._listener:
                    self._begin()
                elif isinstance(key.fileobj, socket.socket):
                    # The fork may have ended among these events, too: then the line to its client is closed.
                    if key.fileobj.fileno() >= 0:
                        self._hear(key.fileobj)
                else:
                    self._end(key.fd)

    def _begin(self) -> None:
        line, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(line, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not data:
            line.close()
            return
        pid = os.fork()
        if pid == 0:
            _become(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        watched = os.pidfd_open(pid)
        self._pids[line], self._pids[watched], self._lines[pid] = pid, pid, line
        self._selector.register(line, selectors.EVENT_READ)
        self._selector.register(watched, selectors.EVENT_READ)

    def _hear(self, line: socket.socket) -> None:
        said = line.recv(64)
        if said:
            os.kill(self._pids[line], int(said))
        else:
            # Killed. What it stood for goes the same way.
            self._selector.unregister(line)
            _kill(self._pids[line], signal.SIGKILL)

    def _end(self, watched: int) -> None:
        pid = self._pids.pop(watched)
        self._selector.unregister(watched)
        os.close(watched)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        line = self._lines.pop(pid)
        del self._pids[line]
        with contextlib.suppress(KeyError, OSError):
            self._selector.unregister(line)
            line.send(str(code).encode())
        line.close()


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _become(order: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """In a fork: take the client's place, and run the code."""
    status = 1
    try:
        os.setsid()
        parked = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _PARKED_FROM) for descriptor in descriptors]
        os.closerange(0, _PARKED_FROM)
        for source, target in zip(parked, order["numbers"], strict=True):
            os.dup2(source, target, inheritable=True)
        os.closerange(_PARKED_FROM, _PARKED_FROM + 2 * _MOST_DESCRIPTORS)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.executable, *arguments = order["argv"]
        code = arguments.index("-c") + 1
        if "-P" not in arguments[:code]:
            sys.path.insert(0, "")
        sys.argv = ["-c", *arguments[code + 1 :]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(arguments[code], "<string>", "exec"), vars(main))  # noqa: S102 that is what an interpreter is for
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 as an interpreter does
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    import torch
    import torch.utils.cpp_extension  # every template of a compiled kernel imports it

    torch.set_num_threads(1)
    _Runs(socket.socket(fileno=int(sys.argv[1]))).serve()
