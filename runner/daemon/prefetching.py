"""Prefetching: a busy slot gets its next job, which is built while the running one has the devices.

Owns the rule when a job is prefetched. That helps only a job that is built without the slot. It may delay a newly
submitted job by one other job's run at most: on every slot a new job waits for the submission that runs and for one job
of another submission. The other job of the running submission (public or secret) counts with it: its build exists
already. So a job is prefetched only

- where the slot shares no device or core with another slot, and all slots of its type on this host are busy;
- beside a job that was built itself, since such submissions come in groups, and that has run for a second;
- while a build worker is idle;
- if it has waited for a moment, so that an idle host would have taken it;
- if it is to be built. Another job is given back at once, and none is prefetched during the rest of that run.

A prefetched job that has not begun is given back as soon as the host begins no more jobs. Talks to no database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final

from runner.daemon.slot import SlotQueue
from runner.model import Job

#: The least time a job has been queued before it is prefetched: idle hosts take jobs within that.
MIN_QUEUED: Final = timedelta(milliseconds=100)
#: The least time between two such claims, so that a host with other work does not ask with every claim.
LOOK_PAUSE_S: Final = 1.0


class Prefetcher:
    """Chooses the slot that gets a job beside its run. Belongs to the claiming thread."""

    def __init__(
        self,
        slot_queues: Sequence[SlotQueue],
        can_build: Callable[[Job], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Slots that share devices or cores wait for more than one run already.
        self._slot_queues = [
            slot_queue
            for slot_queue in slot_queues
            if not any(slot_queue.slot.excludes(other.slot) for other in slot_queues if other is not slot_queue)
        ]
        self._can_build = can_build
        self._clock = clock
        self._not_before_s = 0.0

    def choose(self, free_types: Collection[str], barred: Callable[[], Collection[str]]) -> SlotQueue | None:
        """The slot to claim a job for beside its run, if any.

        Args:
            free_types: GPU types with a free slot.
            barred: returns names of slots that must not be used.
        """
        if self._clock() < self._not_before_s:
            return None
        for slot_queue in self._slot_queues:
            if slot_queue.slot.gpu_type in free_types:
                continue
            running = slot_queue.running()
            if running is not None and slot_queue.slot.name not in barred() and self._can_build(running):
                self._not_before_s = self._clock() + LOOK_PAUSE_S
                return slot_queue
        return None

    def accepts(self, slot_queue: SlotQueue, job: Job) -> bool:
        """Whether the slot keeps a job that was claimed for it; if not, the job is given back."""
        if job.started_at - job.created_at < MIN_QUEUED:
            return False
        if job.avoid_slot == slot_queue.slot.name or not self._can_build(job):
            slot_queue.stop_prefetching()
            return False
        return True
