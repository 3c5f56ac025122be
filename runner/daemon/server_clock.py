"""Whether the clock of the database's server jumps, as this host's own shows. Pure; called by the loop.

Leases end by the server's clock. When that is put forward they all end at once, those of live hosts too; then nothing
is reclaimed until their heartbeats had time to renew them. Must not read the time: it is given both clocks' readings.
"""

from __future__ import annotations


class ServerClock:
    """The server's clock beside a monotonic one. Belongs to one thread."""

    def __init__(self) -> None:
        #: What the server said last, and this host's clock just before it was asked.
        self._last: tuple[float, float] | None = None

    def jump_s(self, server_s: float, *, asked_s: float, answered_s: float) -> float:
        """How far it has been put forward since the last reading, in seconds: at least so far, and mostly exactly.

        Never above 0 for a clock that runs as this host's does, however long an answer takes: the server read its own
        some time between `asked_s` and `answered_s`. 0 for the first reading.
        """
        before, self._last = self._last, (server_s, asked_s)
        if before is None:
            return 0.0
        server_before_s, asked_before_s = before
        return max(0.0, (server_s - server_before_s) - (answered_s - asked_before_s))
