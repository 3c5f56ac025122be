"""The template: a process that has imported the libraries of judge, workers and rank checkers, its forks.

Two imports of torch are most of what the start of a container costs. Init starts the template before any request is
there. It is gone before the worker gets the submission, unless further workers or requests may follow. It holds no
request, file or secret, so a fork of it holds none. It runs with init's effective uid and capabilities, since each fork
takes the uid of its own account. Its real uid is its own: where init kills the processes of a worker, the kernel also
takes those that have init's real uid. Its forks become children of init: each is made by a process in between that ends
at once.

Judge and worker share what a fork shares: the layout of their address spaces and the secrets of Python's and the C
library's hash functions. Neither can read the other's memory. See docs/security.md.

Orders: one JSON message each on a socket whose messages have boundaries, with the new process's descriptors. The last
descriptor is a socket for the handshake: the new process writes its process id there and waits until init watches it.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandbox.inside.process import (
    CANNOT_EXECUTE,
    Account,
    Descriptors,
    Reaper,
    begin_session,
    spawn,
    switch_to,
    write_error,
)

#: The longest order: a program's source and its environment.
_ORDER_BYTES = 1 << 18
_PID_BYTES = 16
_MAX_DESCRIPTORS = 16
#: Asks whether the preload has run; the answer is any byte.
_ASKED = b"?"
#: Lets a fork have its account; what a fork says when it has run what it runs first.
_GO = b"g"
READY = b"r"
#: The template's real and saved uid. No judge and no worker has it (`sandbox.spec.ACCOUNTS`).
_REAL_UID = 10_000
_PR_SET_DUMPABLE = 4
_MAIN = (
    "import sys; sys.path.insert(0, {stage!r}); from sandbox.inside.template import main; "
    "exec(main(), sys.modules['__main__'].__dict__)"
)


@dataclass(frozen=True, kw_only=True)
class Held:
    """A fork that waits for its account. Until then it is as closed to other processes as the template."""

    pid: int
    #: Readable when it has run what it runs first, and at its end.
    line: socket.socket

    def release(self) -> bool:
        """Let it have its account; False: it has ended."""
        with self.line:
            try:
                self.line.send(_GO)
            except OSError:
                return False
        return True


class Template:
    """The template, as init sees it. Close it before a submission's code can run, unless it is needed afterwards."""

    def __init__(self, python: str, preload: str, *, env: Mapping[str, str], reaper: Reaper) -> None:
        """Start it. It runs the preload, which is Python code."""
        self._reaper = reaper
        #: False once it has ended, or could not run the preload.
        self._serves = True
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            self._pid = spawn(
                (python, "-I", "-c", _MAIN.format(stage=sys.path[0]), preload),
                account=Account(uid=0, groups=(), directory="/", umask=0o077, oom_score_adj=None),
                descriptors=Descriptors(stdin=null, stdout=null, stderr=null, more=(theirs.fileno(),)),
                env={**env, "HOME": "/", "USER": "root", "LOGNAME": "root"},
                reaper=reaper,
            )
        finally:
            theirs.close()
            os.close(null)

    def spawn(self, argv: Sequence[str], *, account: Account, descriptors: Descriptors, env: Mapping[str, str]) -> int:
        """Start `python -I -c SOURCE ARGUMENTS` as a fork; return its pid. The reaper watches it.

        Waits until the preload has run. If it failed, the program is started without the template, and says itself
        what is missing.
        """
        if self._serves:
            held = self.hold(argv, account=account, descriptors=descriptors, env=env)
            if held is not None and held.release():
                return held.pid
            self._serves = False
        return spawn(argv, account=account, descriptors=descriptors, env=env, reaper=self._reaper)

    def hold(
        self,
        argv: Sequence[str],
        *,
        account: Account,
        descriptors: Descriptors,
        env: Mapping[str, str],
        first: str = "",
    ) -> Held | None:
        """Make a fork as `spawn` does, that gets its account and runs its program when it is released.

        `first`: Python code that it runs before. None: the template cannot fork.
        """
        order = {"source": argv[3], "arguments": argv[4:], "account": asdict(account), "env": dict(env), "first": first}
        given = (descriptors.stdin, descriptors.stdout, descriptors.stderr, *descriptors.more)
        ours, handshake = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with handshake:
                socket.send_fds(self._line, [json.dumps(order).encode()], [*given, handshake.fileno()])
            answer = ours.recv(_PID_BYTES, socket.MSG_WAITALL)
        except OSError:
            answer = b""
        if not answer:
            ours.close()
            return None
        pid = int(answer)
        self._reaper.watch(pid)
        return Held(pid=pid, line=ours)

    def wait(self) -> None:
        """Wait until the preload has run, or failed."""
        with suppress(OSError):
            self._line.send(_ASKED)
            self._line.recv(1)

    def close(self) -> None:
        """End it, and wait for its end.

        Raises:
            InitError: it does not end.
        """
        self._serves = False
        self._line.close()
        self._reaper.final_status(self._pid)


def main() -> str:
    """Run the preload and make forks; return the source that a fork is to run. Only forks return.

    The caller executes the source in `__main__`, as `python -I -c` would.
    """
    os.setresuid(_REAL_UID, 0, _REAL_UID)
    line = socket.socket(fileno=3)
    _, preload = sys.argv
    path = sys.path[1:]
    gc.disable()
    try:
        exec(preload, {"__name__": "preload"})  # noqa: S102 it comes from the daemon, like this module
    except Exception:  # noqa: BLE001 judge and worker are started without it, and fail with a message of their own
        os._exit(1)
    # No collection looks at what exists now: that would write to pages that the forks share.
    gc.freeze()
    gc.enable()
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, _ORDER_BYTES, _MAX_DESCRIPTORS)
        if not data:
            # Nothing was loaded that needs an orderly end.
            os._exit(0)
        if data == _ASKED:
            line.send(_ASKED)
            continue
        order = json.loads(data)
        if _fork():
            line.detach()
            sys.path[:] = path
            return _become(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _fork() -> bool:
    """Make a grandchild; True in it. Its parent ends at once, so that it becomes a child of init."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    if os.fork():
        os._exit(0)
    return True


def open_streams() -> None:
    """Make Python's streams anew: those of the template remember that they could seek in the template's own files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        if old is None:
            continue
        mode = "w" if number else "r"
        raw = io.FileIO(number, mode, closefd=False)
        raw.name = f"<{name}>"
        # As PYTHONUNBUFFERED asks for.
        unbuffered = number and old.write_through
        stream = io.TextIOWrapper(
            raw if unbuffered else io.BufferedWriter(raw) if number else io.BufferedReader(raw),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        stream.mode = mode  # type: ignore[misc]  # as the interpreter does, whatever typeshed says
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _become(order: Mapping[str, Any], descriptors: Sequence[int]) -> str:
    """Turn this fork into the process that is wanted; return its source."""
    try:
        begin_session(
            Descriptors(stdin=descriptors[0], stdout=descriptors[1], stderr=descriptors[2], more=tuple(descriptors[3:]))
        )
        os.environ.clear()
        os.environ.update(order["env"])
        with socket.socket(fileno=len(descriptors) - 1) as init:
            init.send(f"{os.getpid():{_PID_BYTES}}".encode())
            if order["first"]:
                _run_first(order["first"])
                init.send(READY)
            if not init.recv(1):
                os._exit(CANNOT_EXECUTE)
        switch_to(Account(**{**order["account"], "groups": tuple(order["account"]["groups"])}))
        _require_no_capability()
        # As after exec: a worker opens its own memory file, which belongs to root while this is 0.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        open_streams()
        # What the preload may have found out for the template's own environment.
        tempfile.tempdir = None
        sys.argv = ["-c", *order["arguments"]]
    except BaseException as error:  # noqa: BLE001 a fork must never return into the template's loop
        with suppress(OSError):
            write_error(f"sandbox: cannot become uid {order['account']['uid']}: {error}\n")
        os._exit(CANNOT_EXECUTE)
    source: str = order["source"]
    return source


def _run_first(source: str) -> None:
    """Run what a fork runs first. Of a failure it says nothing: another worker takes its place."""
    try:
        exec(source, {"__name__": "first"})  # noqa: S102 it comes from the daemon, like the preload
    except BaseException:  # noqa: BLE001 a fork must never return into the template's loop
        os._exit(CANNOT_EXECUTE)


def _require_no_capability() -> None:
    """Check that no thread, as of a driver, has kept what the account does not have.

    Raises:
        PermissionError: one has.
    """
    for thread in Path("/proc/self/task").iterdir():
        text = (thread / "status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if set(fields["Uid"].split()) != {str(os.getuid())} or int(fields["CapPrm"], 16):
            raise PermissionError(f"thread {thread.name} has uids {fields['Uid']} and capabilities {fields['CapPrm']}")
