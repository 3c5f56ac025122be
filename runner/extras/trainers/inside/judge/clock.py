"""The time of one side: it passes while its worker works, and stands while the judge computes.

What the judge's own work costs is no fault of a candidate. But a candidate's processes can keep the judge from its
core, so only time that the judge used the processor is given back, or that the same work took when no candidate lived.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from tasks.harness.judge.faults import too_late


class Clock:
    """Counts down from the limit."""

    def __init__(self, limit_s: float) -> None:
        #: On the monotonic clock.
        self.deadline_ns = time.monotonic_ns() + round(limit_s * 1e9)
        self._stands = False

    def check(self) -> None:
        """Raise a Fault if the time is up."""
        if time.monotonic_ns() > self.deadline_ns:
            raise too_late()

    @contextlib.contextmanager
    def standing(self, usual_ns: int = 0) -> Iterator[None]:
        """Let the judge compute. `usual_ns`: what that takes at most where no candidate lives, asleep or not."""
        if self._stands:
            yield
            return
        self._stands = True
        began_ns, used_ns = time.monotonic_ns(), time.process_time_ns()
        try:
            yield
        finally:
            self._stands = False
            used_ns = time.process_time_ns() - used_ns
            self.deadline_ns += min(time.monotonic_ns() - began_ns, max(used_ns, usual_ns))
