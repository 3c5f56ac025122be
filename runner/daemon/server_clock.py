"""Detects jumps of the database server's clock by comparing it with this host's monotonic clock. Pure.

Leases end by the server's clock. When that clock is put forward, all leases end at once, those of live hosts too.
Nothing must be reclaimed then until heartbeats have renewed them. Must not read the time: it is given both readings.
"""

from __future__ import annotations


class ServerClock:
    """The server's clock beside a monotonic one. Belongs to one thread."""

    def __init__(self) -> None:
        #: The server's last reading, and this host's clock just before the question.
        self._last: tuple[float, float] | None = None

    def jump_s(self, server_s: float, *, asked_s: float, answered_s: float) -> float:
        """How far the clock was put forward since the last reading, in seconds; a lower bound, mostly exact.

        The server read its clock some time between `asked_s` and `answered_s`. So a clock that runs like this host's
        gives at most 0, however long an answer takes. 0 for the first reading.
        """
        before, self._last = self._last, (server_s, asked_s)
        if before is None:
            return 0.0
        server_before_s, asked_before_s = before
        return max(0.0, (server_s - server_before_s) - (answered_s - asked_before_s))
