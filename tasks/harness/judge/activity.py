"""Whether a worker's processes used a processor between two moments. Linux only.

A thread that ran between two looks was running at one of them, or its time on a processor grew: the kernel counts that
time whenever it takes a thread off its core (/proc/PID/task/TID/schedstat, Documentation/scheduler/sched-stats.rst).

With one exception. Inside some calls of the kernel a running thread has the state of a sleeping one, and its time is
counted at the next tick, after 1 to 10 ms. A thread that only repeats such calls (`futex_waitv`, `waitid` with
`WNOHANG`) seemed to sleep at a third of all looks, and during 17 of 100 spans of a millisecond. So nothing may be
gained by some calls in which a worker seems to sleep: one in which it is awake makes `course.late_ns` count a copy, and
on devices each such call counts as its whole span.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: More threads take too long to look at. Such a worker counts as busy.
_MOST_THREADS = 512
#: The newest is compared at least as often, in nanoseconds: in this time no worker starts so many that their numbers,
#: 32768 on some hosts, begin anew and come to the same one: the kernel's lock alone takes 1 µs for each.
_COMPARED_NS = 20_000_000
#: States of a thread that does not run: asleep, stopped by a tracer, or ended and not waited for.
_ASLEEP = b"SDItZ"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What all threads were doing at one moment."""

    #: Nanoseconds on a processor so far, by thread.
    ran_ns: Mapping[int, int]
    #: Whether none of them was running or ready to run.
    asleep: bool
    #: The last process or thread that had been started in this container; 0 outside of one.
    newest: int = 0


class Activity:
    """The threads of a worker and of all processes that it started.

    In a container the worker has a user of its own, so its processes are those of that user. Without one they are the
    worker's descendants.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        uid = _uid_of(pid)
        self._uid = None if uid is None or uid == os.getuid() else uid
        #: For each thread: its state file and its file of times.
        self._files: dict[int, tuple[int, int]] = {}
        #: Process and thread, of all; and the newest in this container before they were listed. 0: list them again.
        self._listed: Sequence[tuple[int, int]] = ()
        self._listed_newest = 0
        self._compared_ns = 0
        self._newest_file = None if self._uid is None else os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close all files."""
        if self._newest_file is not None:
            os.close(self._newest_file)
            self._newest_file = None
        for files in self._files.values():
            for file in files:
                os.close(file)
        self._files.clear()

    def look(self, *, may_list: bool = True) -> Look | None:
        """Look at all threads; None where the kernel does not tell, or there are too many.

        `may_list`: whether to list them where there may be new ones, which takes long; else None then. Outside of a
        container there always may be.
        """
        times_ns: dict[int, int] = {}
        compared_ns, self._compared_ns = self._compared_ns, time.monotonic_ns()
        newest = self._newest()
        try:
            is_old = time.monotonic_ns() - compared_ns > _COMPARED_NS
            if newest == 0 or newest != self._listed_newest or is_old:
                if not may_list:
                    self._listed_newest = 0
                    return None
                self._listed, self._listed_newest = [*self._threads()], newest
            # One that has started another since they were listed may sleep already.
            asleep = self._look_at_threads(times_ns) and self._newest() == newest
        except (OSError, ValueError, IndexError):
            return None
        finally:
            # However this look ends: threads that come and go must not fill the judge's table of files.
            for gone in self._files.keys() - times_ns.keys():
                for file in self._files.pop(gone):
                    os.close(file)
        # Some kernels have the files, and no times.
        return Look(ran_ns=times_ns, asleep=asleep, newest=newest) if any(times_ns.values()) else None

    def _look_at_threads(self, times_ns: dict[int, int]) -> bool:
        """Put the time of each thread into `times_ns`; whether all are asleep.

        Raises:
            OSError, ValueError, IndexError: the kernel does not tell, or there are too many.
        """
        asleep = True
        for pid, tid in self._listed:
            if len(times_ns) >= _MOST_THREADS:
                raise ValueError(f"more than {_MOST_THREADS} threads")
            try:
                state, times_ns[tid] = self._read(pid, tid)
            except FileNotFoundError:
                # It ended meanwhile, so it ran.
                asleep, self._listed_newest = False, 0
                continue
            asleep = asleep and state in _ASLEEP
        return asleep

    def idle_since(self, before: Look | None) -> bool:
        """Whether no thread has used a processor since an earlier look."""
        if before is None or not before.asleep:
            return False
        now = self.look()
        # A thread that ended must have run.
        return now is not None and now.asleep and now.ran_ns == before.ran_ns

    def busy_ns(self, before: Look | None) -> int | None:
        """Processor time of all threads since an earlier look.

        None: one runs, or did then, since the kernel counts its time later; one has ended, or may have come and gone.
        """
        now = self.look()
        if before is None or now is None or not (before.asleep and now.asleep):
            return None
        if before.ran_ns.keys() - now.ran_ns.keys() or now.newest != before.newest:
            return None
        return sum(now.ran_ns.values()) - sum(before.ran_ns.values())

    def _newest(self) -> int:
        return 0 if self._newest_file is None else int(os.pread(self._newest_file, 128, 0).split()[-1])

    def _read(self, pid: int, tid: int) -> tuple[bytes, int]:
        if tid not in self._files:
            place = f"/proc/{pid}/task/{tid}"
            state = os.open(f"{place}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._files[tid] = state, os.open(f"{place}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                os.close(state)
                raise
        state_file, times_file = self._files[tid]
        try:
            # The name before the state may hold any character but ends with the last bracket.
            state_of = os.pread(state_file, 1024, 0).rpartition(b")")[2].split()[0]
            return state_of, int(os.pread(times_file, 128, 0).split()[0])
        except ProcessLookupError as error:
            raise FileNotFoundError(str(error)) from error

    def _threads(self) -> Iterator[tuple[int, int]]:
        for pid in self._processes():
            with suppress(OSError):
                for tid in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 names alone
                    yield pid, int(tid)

    def _processes(self) -> Iterator[int]:
        if self._uid is not None:
            for name in os.listdir("/proc"):  # noqa: PTH208 names alone
                if name.isdigit() and _uid_of(int(name)) == self._uid:
                    yield int(name)
            return
        waiting = [self._pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    waiting.extend(map(int, file.read_text(encoding="ascii").split()))


def _uid_of(pid: int) -> int | None:
    """The real user of a process. The owner of its directory would be root for processes that hide their memory."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    return int(status.partition(b"\nUid:")[2].split(maxsplit=1)[0])
