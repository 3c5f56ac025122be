"""One look at the queue: asks for as many jobs as slots are free, and gives each job to a slot.

Owns what a claim asks for and where its jobs go. Must not decide when to look, or what happens after an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from runner.base.config import Config
from runner.base.errors import StaleAttemptError
from runner.base.logs import get_logger
from runner.base.model import Claimed, Job
from runner.daemon.capacity import Capacity
from runner.daemon.leases import LeaseKeeper
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.recovery import Recovery
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.slot import SlotWorker
from runner.store import Claims, Ended, QueueStore, Unreadable

_log = get_logger(__name__)

#: Stored as the slot of a failure that happened before the job had one.
NO_SLOT: Final = "none"


class ClaimTurn:
    """Belongs to the claiming thread."""

    def __init__(
        self,
        config: Config,
        *,
        capacity: Capacity,
        recovery: Recovery,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        instance: str,
    ) -> None:
        self._config = config
        self._capacity = capacity
        self._recovery = recovery
        self._keeper = keeper
        self._publisher = publisher
        self._instance = instance

    def claim(self, store: QueueStore, control: ShutdownControl, *, able: bool) -> Claims:
        """Claim until no slot is free or no job is left; the last answer.

        Asks at least once, which shows that the host lives.

        `able`: engine and disk permit runs; else nothing is claimed.
        """
        config = self._config
        while True:
            # Other threads free slots and quarantine them meanwhile: those that were asked for get the jobs.
            free = self._capacity.free() if able and not control.stop.is_set() else []
            asked_s = time.monotonic()
            claims = store.claim(
                host=config.host_name,
                slots=self._capacity.request(free),
                lease_s=config.lease_s,
                instance=self._instance,
            )
            self._recovery.detect_clock_jump(claims, asked_s)
            self._give(store, claims.jobs, free)
            for unreadable in claims.unreadable:
                self._fail_unreadable(store, unreadable)
            over = claims.draining or not claims.registered or not (claims.jobs or claims.unreadable)
            if over or (claims.jobs and not free):
                return claims

    def _give(self, store: QueueStore, jobs: Sequence[Job], free: list[SlotWorker]) -> None:
        """Give each job to one of the slots, which it takes out of `free`."""
        taken_back = []
        for job, worker in self._capacity.assign(jobs, free):
            if (earlier := self._keeper.lease_of(job)) is not None and not earlier.spooled:
                self._keeper.lost(earlier)
                taken_back.append(job)
                free.append(worker)
                continue
            worker.give(self._keeper.hold(job))
        for job in taken_back:
            self._release_second_claim(store, job)

    def _release_second_claim(self, store: QueueStore, job: Job) -> None:
        """Release a job whose first run has not ended here yet: the claim of that run was lost in a fail-over.

        The result of the first run is stale. Both claims have the same number; the next one has another.
        """
        _log.warning("claim_taken_back", job=job.id, attempt=job.attempt)
        reason = "the server lost an earlier claim of it, whose run has not ended"
        self._end(job, lambda: store.release(job, reason=reason))

    def _fail_unreadable(self, store: QueueStore, unreadable: Unreadable) -> None:
        """Fail a job that this release makes no sense of: another one may, and else it ends with the cause."""
        job, cause = unreadable.claimed, unreadable.cause
        _log.error("job_unreadable", job=job.id, attempt=job.attempt, cause=cause)
        error = f"the job cannot be read: {cause}"
        self._end(job, lambda: store.fail(job, error=error, report=None, slot=NO_SLOT))

    def _end(self, job: Claimed, write: Callable[[], Ended]) -> None:
        """Write how a claim without a run ends, and publish it."""
        try:
            ended = write()
        except StaleAttemptError as error:
            _log.warning("job_not_ours", error=str(error))
        else:
            self._publisher.ended(job, ended)
