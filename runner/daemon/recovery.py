"""Repairs after an outage: claims whose answers were lost, and leases that expired.

Owns when expired leases are reclaimed, and how long they are left alone after an outage or a jump of the server's
clock. Must not claim jobs.
"""

from __future__ import annotations

import time
from typing import Final

from runner.base.config import Config
from runner.base.logs import LogRateLimit, get_logger
from runner.base.retry import between_s
from runner.daemon.leases import LeaseKeeper, StopReason
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.startup import Startup
from runner.store import Claims, QueueStore

_log = get_logger(__name__)

#: A jump of the server's clock by more than this part of a lease starts the grace period.
_JUMP: Final = 0.2
#: Each host waits up to this long before it reclaims, so that the first one saves the others the work.
_RECLAIM_SPREAD_S: Final = 1.0


class ServerClock:
    """The server's clock beside a monotonic one, of which it is given the readings.

    Leases end by the server's clock. When that is put forward, all leases end at once, those of live hosts too.
    """

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


class Recovery:
    """Belongs to the claiming thread."""

    def __init__(
        self, config: Config, *, startup: Startup, keeper: LeaseKeeper, publisher: EventPublisher, instance: str
    ) -> None:
        self._config = config
        self._startup = startup
        self._keeper = keeper
        self._publisher = publisher
        self._instance = instance
        self._log_limit = LogRateLimit()
        #: A claim was not answered: it may have been granted all the same.
        self.claim_unconfirmed = False
        #: Expired leases are left alone until then.
        self._grace_until_s = 0.0
        #: When to reclaim; None: no claim has reported expired leases.
        self._reclaim_at_s: float | None = None
        self._server_clock = ServerClock()

    def start_reclaim_grace(self) -> None:
        """Reclaim nothing for the length of a lease: after an outage other hosts need time to renew theirs."""
        self._grace_until_s = time.monotonic() + self._config.lease_s
        if self._reclaim_at_s is not None:
            self._reclaim_at_s = max(self._reclaim_at_s, self._grace_until_s)

    def detect_clock_jump(self, claims: Claims, asked_s: float) -> None:
        """Start the grace period when the server's clock was put forward: that alone ends leases of live hosts."""
        if claims.now_s is None:
            return
        jump_s = self._server_clock.jump_s(claims.now_s, asked_s=asked_s, answered_s=time.monotonic())
        if jump_s > _JUMP * self._config.lease_s:
            self.start_reclaim_grace()
            if (left_out := self._log_limit.due("jump")) is not None:
                _log.warning("database_clock_jumped", by_s=round(jump_s, 1), left_out=left_out)

    def release_unacknowledged_claims(self, store: QueueStore) -> None:
        """Requeue the jobs of claims whose answers were lost: they run in this host's name, on none of its slots."""
        # Another daemon may have taken the name during the outage; the jobs are its own then.
        self._startup.register(store)
        released = store.recover(
            host=self._config.host_name,
            keep=[lease.job.key for lease in self._keeper.held() if lease.reason is not StopReason.LOST],
            instance=self._instance,
        )
        for job in released:
            self._publisher.reclaimed(job)
        if released and (left_out := self._log_limit.due("released")) is not None:
            _log.warning("unacknowledged_claims_released", count=len(released), left_out=left_out)
        self.claim_unconfirmed = False
        self.start_reclaim_grace()

    def reclaim(self, store: QueueStore, claims: Claims) -> bool:
        """Requeue jobs with expired leases, a short time after a claim has reported some; whether there were any.

        Not every claim looks, so one that reports none takes no plan back.
        """
        now_s = time.monotonic()
        if self._reclaim_at_s is None:
            if not claims.overdue:
                return False
            self._reclaim_at_s = max(now_s + between_s(0.0, _RECLAIM_SPREAD_S), self._grace_until_s)
        if now_s < self._reclaim_at_s:
            return False
        self._reclaim_at_s = None
        reclaimed = store.reclaim()
        for job in reclaimed:
            _log.warning("job_reclaimed", job=job.job_id, state=job.state)
            self._publisher.reclaimed(job)
        return bool(reclaimed)

    @property
    def due_in_s(self) -> float | None:
        """Seconds until `reclaim` has something to do; None: nothing is planned."""
        return None if self._reclaim_at_s is None else max(0.0, self._reclaim_at_s - time.monotonic())
