"""One look at the queue: asks for as many jobs as slots are free, and gives each job to a slot.

Owns what a claim asks for and where its jobs go. Must not decide when to look, or what happens after an outage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from runner.config import Settings
from runner.daemon.capacity import NO_REQUEST, Capacity, ClaimRequest
from runner.daemon.leases import LeaseKeeper
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.prefetching import Prefetcher
from runner.daemon.recovery import Recovery
from runner.daemon.reservations import Reservations
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.slot import SlotQueue
from runner.errors import StaleAttemptError
from runner.gpu_types import Registry
from runner.logs import get_logger
from runner.model import Job
from runner.store import Claims, QueueStore, Unreadable

_log = get_logger(__name__)

#: Stored as the slot of a failure that happened before the job had one.
NO_SLOT: Final = "none"
#: The pause after a claim that brought jobs; shorter when every slot is free before. Slots that come free meanwhile are
#: claimed for together: one claim for several slots costs hardly more than for one.
GATHER_S: Final = 0.0025


class ClaimTurn:
    """Belongs to the claiming thread.

    `quarantined` returns the slots that must not be used. The last busy slot sets `all_free` when it comes free.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        capacity: Capacity,
        slot_queues: Sequence[SlotQueue],
        prefetcher: Prefetcher,
        reservations: Reservations,
        recovery: Recovery,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        registry: Registry,
        quarantined: Callable[[], Mapping[str, str]],
        all_free: threading.Event,
        instance: str,
    ) -> None:
        self._settings = settings
        self._capacity = capacity
        self._slot_queues = tuple(slot_queues)
        self._prefetcher = prefetcher
        self._reservations = reservations
        self._recovery = recovery
        self._keeper = keeper
        self._publisher = publisher
        self._registry = registry
        self._quarantined = quarantined
        self._all_free = all_free
        self._instance = instance

    def claim(self, store: QueueStore, control: ShutdownControl, *, able: bool) -> Claims:
        """Claim until no slot is free or no job is left; the last answer.

        Asks at least once, which shows that the host lives.

        `able`: engine and disk permit runs; else nothing is claimed.
        """
        config = self._settings.current
        while True:
            claiming = able and not control.stop_claiming.is_set()
            if claiming:
                self._reservations.renew(store)
            else:
                self._reservations.forget()
            request = self._capacity.request() if claiming else NO_REQUEST
            ahead = self._next_to_prefetch(request) if claiming else None
            if ahead is not None:
                names = self._capacity.names([ahead])
                unranked = request.unranked | (set() if self._capacity.ranks(ahead) else set(names))
                request = replace(request, slots={**request.slots, **dict.fromkeys(names, 1)}, unranked=unranked)
            asked_s = time.monotonic()
            claims = store.claim(
                host=config.host_name,
                slots=request.slots,
                lease_s=config.lease_s,
                at_most=request.at_most,
                instance=self._instance,
                unranked=request.unranked,
            )
            self._recovery.detect_clock_jump(claims, asked_s)
            jobs = claims.jobs if ahead is None else self._give_prefetched(store, ahead, claims.jobs)
            # Counted, not asked for afterwards: a slot whose job ended at once would seem never to have been taken.
            free = self._capacity.free()
            for job, slot_queue in self._capacity.assign(jobs):
                slot_queue.give(self._keeper.hold(job))
                free = self._capacity.beside(free, slot_queue)
            for unreadable in claims.unreadable:
                self._fail_unreadable(store, unreadable)
            if claims.jobs:
                self._wait_for_more_free_slots()
            if claims.draining or not claims.registered:
                self._reservations.forget()
                return claims
            if not claims.jobs and not claims.unreadable and not self._reservations.ended(store):
                return claims
            if claims.jobs and not free:
                return claims

    def _wait_for_more_free_slots(self) -> None:
        """After a claim that brought jobs: let slots come free that are about to."""
        self._all_free.clear()
        if any(slot_queue.busy for slot_queue in self._slot_queues):
            self._all_free.wait(GATHER_S)

    def _next_to_prefetch(self, request: ClaimRequest) -> SlotQueue | None:
        """The busy slot that takes a job beside its run, if any; not where one choice takes away another."""
        if request.at_most is not None:
            return None
        return self._prefetcher.choose(request.slots, self._quarantined)

    def _give_prefetched(self, store: QueueStore, slot_queue: SlotQueue, jobs: Sequence[Job]) -> Sequence[Job]:
        """Give the job that was claimed for a busy slot to that, or back to the queue; the other jobs."""
        others = []
        for job in jobs:
            if self._registry.get(job.gpu_type).name != slot_queue.slot.gpu_type or not slot_queue.busy:
                others.append(job)
            elif self._prefetcher.accepts(slot_queue, job):
                _log.info("job_prefetched", job=job.id, slot=slot_queue.slot.name)
                slot_queue.give(self._keeper.hold(job, ahead=True))
            else:
                lease = self._keeper.hold(job, running=False)
                try:
                    self._publisher.ended(
                        job, store.release(job, reason="its host is busy, and nothing is to be built")
                    )
                except StaleAttemptError as error:
                    _log.warning("job_not_ours", error=str(error))
                finally:
                    self._keeper.drop(lease)
        return others

    def _fail_unreadable(self, store: QueueStore, unreadable: Unreadable) -> None:
        """Fail a job that this release makes no sense of: another one may, and else it ends with the cause."""
        job, cause = unreadable.claimed, unreadable.cause
        _log.error("job_unreadable", job=job.id, attempt=job.attempt, cause=cause)
        try:
            ended = store.fail(job, error=f"the job cannot be read: {cause}", report=None, slot=NO_SLOT)
        except StaleAttemptError as error:
            _log.warning("job_not_ours", error=str(error))
        else:
            self._publisher.ended(job, ended)
