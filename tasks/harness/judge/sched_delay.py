"""How long processes of ours were ready to run and did not: what a loaded machine adds to every time; Linux only.

From /proc/PID/schedstat (Documentation/scheduler/sched-stats.rst): nanoseconds on a core, nanoseconds waiting for one,
time slices. Where the kernel does not keep it, nothing is known. A submission can make its own process wait, by threads
of its own; so this excuses nothing but a suspicion. Used by the judge.
"""

from __future__ import annotations

import os
from contextlib import suppress


class SchedDelay:
    """The main threads of this process and of others that are watched."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self.watch(os.getpid())

    def watch(self, pid: int) -> None:
        """Count a process from now on; nothing happens if the kernel does not tell."""
        with suppress(OSError):
            self._files.append(os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Count nobody any more."""
        while self._files:
            os.close(self._files.pop())

    def total_ns(self) -> int | None:
        """Nanoseconds they have waited for a core so far, all together; None where nobody counts them."""
        total = 0
        for file in self._files:
            try:
                _, waited, _ = os.pread(file, 128, 0).split()
            except (OSError, ValueError):
                # It has ended, or this kernel says something else.
                return None
            total += int(waited)
        return total if self._files else None

    def since(self, before_ns: int | None) -> int | None:
        """Nanoseconds they have waited since an earlier total."""
        now_ns = self.total_ns()
        return None if now_ns is None or before_ns is None else now_ns - before_ns
