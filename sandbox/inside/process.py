"""Starts processes under another uid, reaps every child, and kills all processes of a uid.

Owns fork, exec, kill and wait inside the container; knows nothing of requests and results. It runs in one
single-threaded process: PID 1, uid 0, with only the capabilities SETUID, SETGID and KILL. Without further capabilities
it cannot access the worker's files, so a child with the worker's uid does that work.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

#: If no killed process dies within this time, the processes hang in the kernel (a device fell off the bus).
KILL_PATIENCE_S = 10.0
#: Limit of file work in a child. A hostile directory tree must not block init.
HELPER_PATIENCE_S = 30.0

CANNOT_EXECUTE = 126
NOT_FOUND = 127


class InitError(Exception):
    """The harness itself failed. The message is sent in the `end` frame."""


class DaemonGone(Exception):
    """The daemon closed standard input before the end: it no longer waits for the report."""


class HelperError(Exception):
    """A child with the worker's uid could not do its file work. Usually the submission caused it."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The uid of a process and where it starts."""

    uid: int
    groups: tuple[int, ...]
    directory: str
    umask: int
    #: When memory runs out, the kernel kills the highest first: the worker, then the judge, then init. None: as init.
    oom_score_adj: int | None


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """The descriptors of a new process, in the order of their numbers there. All others are closed."""

    stdin: int
    stdout: int
    stderr: int
    #: They become 3, 4, 5, ...: low numbers, because a POSIX shell can redirect only single digits.
    more: tuple[int, ...] = ()


class Reaper:
    """Reaps every child. Orphans become children of PID 1, so it reaps them too."""

    def __init__(self) -> None:
        self._statuses: dict[int, int | None] = {}
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        #: Becomes readable when a child has changed its state.
        self.wakeup_fd = read
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch(self, pid: int) -> None:
        """Keep this child's status for `status`."""
        self._statuses[pid] = None

    def collect(self) -> None:
        """Reap all children that have ended."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakeup_fd, 4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._statuses:
                self._statuses[pid] = status

    def status(self, pid: int) -> int | None:
        """The wait status of a watched child; None while it runs."""
        return self._statuses[pid]

    def final_status(self, pid: int) -> int:
        """Wait for the status of a watched child that has been killed.

        Raises:
            InitError: the kernel did not report it within KILL_PATIENCE_S.
        """
        deadline = time.monotonic() + KILL_PATIENCE_S
        while True:
            self.collect()
            status = self._statuses[pid]
            if status is not None:
                return status
            if time.monotonic() > deadline:
                raise InitError(f"process {pid} was killed, but its status did not come in {KILL_PATIENCE_S:.0f} s")
            select.select([self.wakeup_fd], [], [], 0.005)


def decode_status(status: int) -> tuple[int | None, int | None]:
    """Split a wait status into exit code and signal. Exactly one of them is None."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def spawn(
    argv: Sequence[str], *, account: Account, descriptors: Descriptors, env: Mapping[str, str], reaper: Reaper
) -> int:
    """Start a program under another uid in a session of its own; return its pid. The reaper watches it.

    Raises:
        InitError: no process could be started.
    """
    pid = _fork()
    if pid == 0:
        _exec_child(argv, account, descriptors, env)
    reaper.watch(pid)
    return pid


def _fork() -> int:
    try:
        return os.fork()
    except OSError as error:
        raise InitError(f"cannot start a process: {error.strerror}") from error


def _exec_child(argv: Sequence[str], account: Account, descriptors: Descriptors, env: Mapping[str, str]) -> NoReturn:
    code = CANNOT_EXECUTE
    try:
        _default_signals()
        become(account, descriptors)
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 no shell is wanted
    except FileNotFoundError as error:
        code = NOT_FOUND
        write_error(f"sandbox: cannot start {argv[0]!r}: {error.strerror}\n")
    except BaseException as error:  # noqa: BLE001 a forked child must never return into the parent's code
        write_error(f"sandbox: cannot start {argv[:1]!r}: {error}\n")
    finally:
        os._exit(code)


def become(account: Account, descriptors: Descriptors) -> None:
    """Give this process its own session, its descriptors and its account."""
    begin_session(descriptors)
    switch_to(account)


def begin_session(descriptors: Descriptors) -> None:
    """Give this process its own session and its descriptors."""
    os.setsid()
    _install_descriptors(descriptors)


def output_pipe() -> tuple[int, int]:
    """A pipe for what an account writes: its ends. The account may also open it by name, as /dev/stdout, to write."""
    read, write = os.pipe()
    # Under gVisor a pipe keeps its mode.
    with contextlib.suppress(PermissionError):
        os.fchmod(write, 0o622)
    return read, write


def write_error(text: str) -> None:
    """Write to stderr, if there is a reader."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))


def _default_signals() -> None:
    """Undo Python's signal settings. Ignored signals would stay ignored after exec."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _install_descriptors(descriptors: Descriptors) -> None:
    """Put the descriptors in place and close all others.

    First all are copied above every target number, so that no dup2 overwrites a descriptor that is still needed.
    """
    sources = (descriptors.stdin, descriptors.stdout, descriptors.stderr, *descriptors.more)
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in sources]
    for target, fd in enumerate(copies):
        os.dup2(fd, target)
    os.closerange(len(sources), os.sysconf("SC_OPEN_MAX"))


def switch_to(account: Account) -> None:
    """Switch this process to the account for good: real, effective and saved ids. No capability is left."""
    if account.oom_score_adj is not None:
        # Before the uid changes: afterwards /proc/self belongs to root.
        Path("/proc/self/oom_score_adj").write_text(str(account.oom_score_adj), encoding="ascii")
    os.setgroups(account.groups)
    os.setresgid(account.uid, account.uid, account.uid)
    os.setresuid(account.uid, account.uid, account.uid)
    os.umask(account.umask)
    os.chdir(account.directory)


def kill_all_of(uid: int, reaper: Reaper) -> None:
    """Kill every process of a uid; return when none is left.

    kill(-1) by a process with the victims' effective uid reaches that uid's processes, all at once, so a fork bomb
    cannot outrun it. Init does it itself, because a fork bomb leaves no room for a child under the pids limit. Init's
    real uid stays 0, so no process can signal it meanwhile. The call also reaches processes with the real or saved uid
    0: there is none but the template, which has another one (`sandbox.inside.template`).

    On a busy host the kernel may need long to remove a fork bomb. The time limit starts again while processes vanish.

    Raises:
        InitError: within KILL_PATIENCE_S none of the remaining processes died.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    fewest: int | None = None
    while True:
        os.seteuid(uid)
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
        finally:
            os.seteuid(0)
        reaper.collect()
        alive = processes_of(uid)
        if not alive:
            return
        if fewest is None or len(alive) < fewest:
            fewest = len(alive)
            deadline = time.monotonic() + KILL_PATIENCE_S
        if time.monotonic() > deadline:
            raise InitError(f"processes {alive} of uid {uid} did not die within {KILL_PATIENCE_S:.0f} s of SIGKILL")
        # The kernel is removing them. SIGCHLD arrives when one is gone.
        select.select([reaper.wakeup_fd], [], [], 0.005)


def processes_of(uid: int) -> list[int]:
    """The pids of the living processes of a uid. A zombie counts as long as the kernel is removing its threads.

    Reads the Uid line and not the owner of /proc/PID: an undumpable process's directory belongs to root.
    """
    pids = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            text = (directory / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        dead = fields.get("State", "").strip().startswith(("Z", "X")) and fields.get("Threads", "1").strip() == "1"
        if str(uid) in fields.get("Uid", "").split() and not dead:
            pids.append(int(directory.name))
    return pids


def run_as(account: Account, work: Callable[[int], None], *, reaper: Reaper, max_bytes: int = 0) -> bytearray:
    """Run file work in a child with the account's uid; return what it writes to its descriptor.

    Raises:
        HelperError: the work raised an exception, wrote more than max_bytes, took too long, or was killed.
        InitError: no process could be started.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pid = _fork()
    if pid == 0:
        _work_child(account, work, out_write, err_write)
    reaper.watch(pid)
    os.close(out_write)
    os.close(err_write)
    try:
        output = _read_limited(out_read, max_bytes, account.uid, reaper)
        complaint = _read_limited(err_read, 4096, account.uid, reaper)
    finally:
        os.close(out_read)
        os.close(err_read)
    if complaint:
        raise HelperError(complaint.decode("utf-8", "replace"))
    exit_code, number = decode_status(reaper.final_status(pid))
    if exit_code != 0:
        # The kernel kills it first when memory runs out: what it has done is not complete.
        how = f"exit code {exit_code}" if number is None else f"signal {number}"
        raise HelperError(f"the process that works on files ended with {how}")
    return output


def _work_child(account: Account, work: Callable[[int], None], out_fd: int, err_fd: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _default_signals()
        switch_to(account)
        work(out_fd)
        code = 0
    except BaseException as error:  # noqa: BLE001 a forked child must never return into the parent's code
        name = getattr(error, "filename", None)
        text = f"{error.strerror}: {name}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(err_fd, text.encode("utf-8", "replace")[:4096])
    finally:
        os._exit(code)


def _read_limited(fd: int, max_bytes: int, uid: int, reaper: Reaper) -> bytearray:
    """Read until the end of file.

    Raises:
        HelperError: more than max_bytes, or no end within HELPER_PATIENCE_S. The child has been killed.
    """
    deadline = time.monotonic() + HELPER_PATIENCE_S
    data = bytearray()
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            kill_all_of(uid, reaper)
            raise HelperError(f"file work took longer than {HELPER_PATIENCE_S:.0f} s")
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return data
        data += chunk
        if len(data) > max_bytes:
            kill_all_of(uid, reaper)
            raise HelperError(f"more than {max_bytes} bytes")
