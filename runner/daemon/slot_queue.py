"""A slot and its jobs: the one that runs, and the one that is built meanwhile and runs next.

Owns the rule when a job is taken beside a run. That helps only a job that is built without the slot, and it must cost
nobody else more than one job's run: a newcomer waits for the submission that runs, and for one job of another, on every
slot. (The twin of what runs counts with it: its build is there already, and it would keep the lane idle.) So a job is
taken ahead only

- where the slot shares nothing with another one, and all slots of its type on this host are busy;
- while the slot runs a job that was built itself, since submissions that compile come in flocks, has done so for a
  second, and a lane has room;
- if it has waited for a moment: had a host been idle, it would have taken it;
- if it is to be built. One that is not goes back at once, and no other is asked for during that run.

What has not begun is given back as soon as the host begins no more jobs. Talks to no database. Called by the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final

from runner.daemon.leases import Lease, StopReason
from runner.daemon.slot_worker import SlotWorker
from runner.model import Job, Slot

#: How long a job has waited in the queue before it is taken beside a run: idle hosts take theirs within that.
MIN_QUEUED: Final = timedelta(milliseconds=100)
#: How long a run has lasted before another job is taken beside it: a short one is over before anything is built.
MIN_RUNNING_S: Final = 1.0
#: The least time between two looks for such a job, so that a host with other work does not ask with every claim.
LOOK_PAUSE_S: Final = 1.0


class SlotQueue:
    """A slot as the loop sees it. `busy` may be asked by anybody; all else is the loop's thread."""

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
        #: More are made when they are first needed.
        self._workers = [make_worker(slot)]
        #: What was given, oldest first: what runs, what is next. And when the last of it was.
        self._jobs: list[tuple[SlotWorker, Lease]] = []
        self._last_given_s = 0.0
        #: The run during which no more jobs are taken ahead.
        self._no_prefetch_during: Lease | None = None

    @property
    def busy(self) -> bool:
        """Whether a job was given that is not over."""
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
        """Begin to work."""
        for worker in self._workers:
            self._start(worker)

    def give(self, lease: Lease) -> None:
        """Hand over a job that is to run now, or next if another one runs."""
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
        """The job that runs, if another one may be taken beside it as far as this slot knows."""
        leases = [lease for _, lease in self._unfinished()]
        if not leases or leases[0] is self._no_prefetch_during or self._clock() - self._last_given_s < MIN_RUNNING_S:
            return None
        runs, *ahead = (lease.job for lease in leases)
        others = [job for job in ahead if job.submission_id != runs.submission_id]
        return None if others or len(ahead) > 1 else runs

    def stop_prefetching(self) -> None:
        """Take no other job beside the current run: there was one, and it was of no use."""
        self._no_prefetch_during = next((lease for _, lease in self._unfinished()), None)

    def release_prefetched(self) -> None:
        """Have what has not begun given back to the queue."""
        for _, lease in self._unfinished()[1:]:
            lease.stop(StopReason.GIVEN_BACK)

    def _unfinished(self) -> list[tuple[SlotWorker, Lease]]:
        return [(worker, lease) for worker, lease in self._jobs if worker.busy]


class Prefetcher:
    """Which slot of a host takes a job beside its run. Belongs to the loop's thread."""

    def __init__(
        self,
        slot_queues: Sequence[SlotQueue],
        can_build: Callable[[Job], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # What shares devices or cores waits for more than one run already.
        self._slot_queues = [
            slot_queue
            for slot_queue in slot_queues
            if not any(slot_queue.slot.excludes(other.slot) for other in slot_queues if other is not slot_queue)
        ]
        self._can_build = can_build
        self._clock = clock
        self._not_before_s = 0.0

    def choose(self, free_types: Collection[str], barred: Callable[[], Collection[str]]) -> SlotQueue | None:
        """The slot to ask a job for beside its run, if any.

        Args:
            free_types: GPU types of which a slot is free.
            barred: says names of slots that must not be used.
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
        """Whether a job that was claimed for a busy slot stays there; else it is given back."""
        if job.started_at - job.created_at < MIN_QUEUED:
            return False
        if job.avoid_slot == slot_queue.slot.name or not self._can_build(job):
            slot_queue.stop_prefetching()
            return False
        return True
