"""How long processes of ours were ready to run and did not: the time that a loaded machine adds. Linux only.

From /proc/PID/schedstat (Documentation/scheduler/sched-stats.rst): nanoseconds on a core, nanoseconds waiting for one,
time slices. Nothing is known where the kernel does not keep it. A submission can make its own process wait, with
threads of its own. So a delay only excuses a suspicion, it never proves anything.
"""

from __future__ import annotations

import os
from contextlib import suppress


class SchedDelay:
    """Sums the delays of the main threads of this process and of watched ones."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self.watch(os.getpid())

    def watch(self, pid: int) -> None:
        """Count a process from now on, if the kernel tells its delay."""
        with suppress(OSError):
            self._files.append(os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Stop counting."""
        while self._files:
            os.close(self._files.pop())

    def total_ns(self) -> int | None:
        """Nanoseconds that all of them have waited for a core so far; None where the kernel does not tell."""
        total = 0
        for file in self._files:
            try:
                _, waited, _ = os.pread(file, 128, 0).split()
            except (OSError, ValueError):
                # The process has ended, or this kernel has another format.
                return None
            total += int(waited)
        return total if self._files else None

    def since(self, before_ns: int | None) -> int | None:
        """Nanoseconds that they have waited since an earlier total."""
        now_ns = self.total_ns()
        return None if now_ns is None or before_ns is None else now_ns - before_ns
