"""When a job is taken beside a run, and which."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from runner.daemon.leases import Lease, StopReason
from runner.daemon.prefetching import LOOK_PAUSE_S, MIN_QUEUED, Prefetcher
from runner.daemon.slot import MIN_RUNNING_S, SlotQueue, SlotWorker
from runner.model import Job, Slot
from tests.unit.daemon.hosts import job, slot


@dataclass
class Worker(SlotWorker):
    """A thread of a slot that is busy until the test says otherwise."""

    def __init__(self, where: Slot) -> None:
        self.slot = where
        self.given: list[Lease] = []
        self.over = True

    @property
    def busy(self) -> bool:
        """As the test says."""
        return not self.over

    def give(self, lease: Lease) -> None:
        """Be busy."""
        self.given.append(lease)
        self.over = False


class Host:
    """Slots with a clock that the test moves; every job that says so is built."""

    def __init__(self, *slots: Slot) -> None:
        self.now_s = 100.0
        self.room = True
        self.started: list[Worker] = []
        self.slot_queues = [
            SlotQueue(each, Worker, start=self._start, clock=lambda: self.now_s)
            for each in slots or (slot("one", "One", 0),)
        ]
        self.ahead = Prefetcher(self.slot_queues, lambda job: self.room and b"x" in job.code, clock=lambda: self.now_s)

    def _start(self, worker: SlotWorker) -> None:
        assert isinstance(worker, Worker)
        self.started.append(worker)

    def run(self, slot_queue: SlotQueue, given: Job | None = None) -> Lease:
        """Give a job, and let it last."""
        lease = Lease(given or job("One"), deadline_s=None)
        slot_queue.give(lease)
        self.now_s += max(MIN_RUNNING_S, LOOK_PAUSE_S)
        return lease

    def chosen(self, *free_types: str, barred: tuple[str, ...] = ()) -> SlotQueue | None:
        """The slot a job is asked for."""
        return self.ahead.choose(free_types, lambda: barred)


def other(number: int = 1) -> Job:
    """A job of another submission."""
    return replace(job("One", job_id=100 + number), submission_id=100 + number)


def waited(given: Job, period: timedelta = MIN_QUEUED) -> Job:
    """A job that was claimed so long after it was made."""
    return replace(given, started_at=given.created_at + period)


def test_a_job_is_asked_for_beside_a_run_that_was_built() -> None:
    """For one slot at a time, and not more often than it helps."""
    host = Host()
    (slot_queue,) = host.slot_queues
    assert host.chosen() is None, "nothing runs"
    host.run(slot_queue)
    assert host.chosen() is slot_queue
    assert host.chosen() is None
    host.now_s += LOOK_PAUSE_S
    assert host.chosen() is slot_queue


def test_no_job_is_asked_for_where_it_would_not_help() -> None:
    """Or where it would be in somebody's way."""
    host = Host()
    (slot_queue,) = host.slot_queues
    slot_queue.give(Lease(job("One"), deadline_s=None))
    assert host.chosen() is None, "the run has just begun"
    host.now_s += MIN_RUNNING_S
    assert host.chosen("One") is None, "another slot of the type is free"
    assert host.chosen(barred=("one",)) is None, "a container of it will not go"
    host.room = False
    assert host.chosen() is None, "every build worker builds"
    host.room = True
    assert host.chosen() is slot_queue


def test_nothing_is_taken_beside_a_run_that_was_not_built() -> None:
    """Submissions that compile come in flocks."""
    host = Host()
    host.run(host.slot_queues[0], replace(job("One"), code=b""))
    assert host.chosen() is None


def test_slots_that_share_devices_take_no_job_ahead() -> None:
    """Whoever waits for those waits for more than one run already."""
    host = Host(slot("two", "Two", 0, 1), slot("one", "One", 0), slot("apart", "One", 3))
    for slot_queue in host.slot_queues:
        host.run(slot_queue)
    assert host.chosen() is host.slot_queues[2]


def test_a_slot_holds_one_job_ahead_and_works_them_off_in_order() -> None:
    """The second thread is made when it is needed, and once."""
    host = Host()
    (slot_queue,) = host.slot_queues
    slot_queue.open()
    host.run(slot_queue)
    host.run(slot_queue, other())
    assert host.chosen() is None, "one is there"
    first, second = host.started
    first.over = True
    assert slot_queue.busy
    host.run(slot_queue, other(2))
    assert [len(worker.given) for worker in (first, second)] == [2, 1]
    slot_queue.release_prefetched()
    assert (second.given[0].reason, first.given[1].reason) == (None, StopReason.GIVEN_BACK)
    assert host.started == [first, second]


def test_the_secret_job_of_what_runs_takes_no_other_jobs_place() -> None:
    """Its build is there: the build worker would be idle while both run. After it comes one other job, no more."""
    host = Host()
    (slot_queue,) = host.slot_queues
    host.run(slot_queue)
    host.run(slot_queue, replace(job("One", job_id=2), secret=True))
    assert host.chosen() is slot_queue
    host.run(slot_queue, other())
    assert host.chosen() is None
    slot_queue.release_prefetched()
    reasons = [worker.given[0].reason for worker in slot_queue.workers if isinstance(worker, Worker)]
    assert reasons == [None, StopReason.GIVEN_BACK, StopReason.GIVEN_BACK]


@pytest.mark.parametrize("odd", ["young", "not built", "avoids"])
def test_what_was_claimed_in_vain_does_not_stay(odd: str) -> None:
    """A job another host would take at once, one that is not built, one that has just failed here."""
    host = Host()
    (slot_queue,) = host.slot_queues
    host.run(slot_queue)
    claimed = waited(job("One", avoid_slot="one" if odd == "avoids" else None))
    match odd:
        case "young":
            claimed = waited(claimed, MIN_QUEUED / 2)
        case "not built":
            claimed = replace(claimed, code=b"")
        case _:
            pass
    assert not host.ahead.accepts(slot_queue, claimed)
    asks_again = odd == "young"
    assert (host.chosen() is not None) == asks_again
    # The next run is another matter.
    (worker,) = slot_queue.workers
    assert isinstance(worker, Worker)
    worker.over = True
    host.run(slot_queue)
    assert host.chosen() is slot_queue


def test_what_is_to_be_built_stays() -> None:
    """That is what it was claimed for."""
    host = Host()
    host.run(host.slot_queues[0])
    assert host.ahead.accepts(host.slot_queues[0], waited(job("One")))
