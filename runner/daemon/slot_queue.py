"""A slot's jobs: the one that runs, and the one that is built meanwhile and runs next (prefetching).

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

from runner.daemon.leases import Lease, StopReason
from runner.daemon.slot_worker import SlotWorker
from runner.model import Job, Slot

#: The least time a job has been queued before it is prefetched: idle hosts take jobs within that.
MIN_QUEUED: Final = timedelta(milliseconds=100)
#: The least time a run has lasted before a job is prefetched beside it: a short run ends before a build does.
MIN_RUNNING_S: Final = 1.0
#: The least time between two such claims, so that a host with other work does not ask with every claim.
LOOK_PAUSE_S: Final = 1.0


class SlotQueue:
    """A slot as the claiming thread sees it. Any thread may ask `busy`; all else belongs to the claiming thread."""

    def __init__(
        self,
        slot: Slot,
        make_worker: Callable[[Slot], SlotWorker],
        *,
        start: Callable[[SlotWorker], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slot = slot
        self._make_worker = make_worker
        self._start = start
        self._clock = clock
        #: A second one is made when it is first needed.
        self._workers = [make_worker(slot)]
        #: Jobs in order: the running one, the next one. And when the last was added.
        self._jobs: list[tuple[SlotWorker, Lease]] = []
        self._last_given_s = 0.0
        #: The run during which no more jobs are prefetched.
        self._no_prefetch_during: Lease | None = None

    @property
    def busy(self) -> bool:
        """Whether it has an unfinished job."""
        # Asked for every slot, several times with each claim; a generator would be half of what that costs.
        for worker in self._workers:  # noqa: SIM110
            if worker.busy:
                return True
        return False

    @property
    def workers(self) -> Sequence[SlotWorker]:
        """The threads of this slot."""
        return tuple(self._workers)

    def open(self) -> None:
        """Start the threads."""
        for worker in self._workers:
            self._start(worker)

    def give(self, lease: Lease) -> None:
        """Add a job: it runs now, or after the running one."""
        given = self._unfinished()
        worker = next((worker for worker in self._workers if not worker.busy), None)
        if worker is None:
            worker = self._make_worker(self.slot)
            self._workers.append(worker)
            self._start(worker)
        self._jobs = [*given, (worker, lease)]
        self._last_given_s = self._clock()
        worker.give(lease)

    def running(self) -> Job | None:
        """The running job, if another one may be prefetched beside it as far as this slot knows."""
        leases = [lease for _, lease in self._unfinished()]
        if not leases or leases[0] is self._no_prefetch_during or self._clock() - self._last_given_s < MIN_RUNNING_S:
            return None
        runs, *ahead = (lease.job for lease in leases)
        others = [job for job in ahead if job.submission_id != runs.submission_id]
        return None if others or len(ahead) > 1 else runs

    def stop_prefetching(self) -> None:
        """Prefetch no job during the current run: the last one was of no use."""
        self._no_prefetch_during = next((lease for _, lease in self._unfinished()), None)

    def release_prefetched(self) -> None:
        """Give back jobs that have not begun."""
        for _, lease in self._unfinished()[1:]:
            lease.stop(StopReason.GIVEN_BACK)

    def _unfinished(self) -> list[tuple[SlotWorker, Lease]]:
        return [(worker, lease) for worker, lease in self._jobs if worker.busy]


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
