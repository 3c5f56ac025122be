"""The lease keeper: what it renews, what it hears, and what it survives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError
from runner.base.model import Job
from runner.daemon.leases import OVERTIME_GRACE_S, STOPPING_S, Lease, LeaseKeeper, StopReason
from runner.store import LeaseState, QueueStore
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit import samples

Held = Sequence[tuple[int, int]]
Answer = Callable[[Held], Sequence[LeaseState]]


def job(job_id: int = 1, attempt: int = 1) -> Job:
    """Some job."""
    return samples.job(id=job_id, attempt=attempt)


class FakeHeart:
    """A database that answers heartbeats as the test says."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.is_alive: list[Held] = []
        self.lease_s = 0.0
        self.enough = threading.Semaphore(0)
        self.closed = threading.Semaphore(0)

    def open(self) -> QueueStore:
        """A connection."""
        return cast("QueueStore", self)

    def heartbeat(self, *, host: str, lease_s: float, held: Held, instance: str | None) -> Sequence[LeaseState]:
        """Remember and answer."""
        assert (host, instance) == ("h", "i")
        assert held, "an idle host costs nothing"
        self.is_alive.append(held)
        self.lease_s = lease_s
        self.enough.release()
        return self.answer(held)

    def close(self) -> None:
        """Remember."""
        self.closed.release()

    def last(self) -> Held:
        """What the last beat named."""
        return self.is_alive[-1]

    def wait(self, beats: int) -> None:
        """Wait for so many heartbeats that begin from now on; the first may have been composed before."""
        while self.enough.acquire(blocking=False):
            """Those before do not count, however many came while this thread had no core."""
        for _ in range(beats):
            assert self.enough.acquire(timeout=PATIENCE_S)


def of_all(*, ours: bool = True, cancelled: bool = False) -> Answer:
    """The same answer for each job."""
    return lambda held: [
        LeaseState(job_id=key, attempt=attempt, ours=ours, cancel_requested=cancelled) for key, attempt in held
    ]


def config(**changed: object) -> Config:
    """A host's, with fast heartbeats."""
    return Config.model_validate({"host_name": "h", "lease_s": 3.0, "heartbeat_s": 0.01, "max_run_s": 60.0, **changed})


Run = Callable[..., tuple[LeaseKeeper, FakeHeart]]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts keepers with fast hearts; stops them when the test ends."""
    stop = threading.Event()
    running: list[tuple[threading.Thread, LeaseKeeper]] = []

    def start(
        answer: Answer = of_all(),  # noqa: B008 - a function
        *,
        clock: Callable[[], float] | None = None,
        **changed: object,
    ) -> tuple[LeaseKeeper, FakeHeart]:
        heart = FakeHeart(answer)
        # The real one would have a keeper that the machine holds up for a lease say so.
        keeper = LeaseKeeper(heart.open, config(**changed), instance="i", clock=clock or Clock())
        thread = threading.Thread(target=keeper.run, args=(stop,))
        running.append((thread, keeper))
        thread.start()
        return keeper, heart

    yield start
    stop.set()
    for thread, keeper in running:
        keeper.nudge()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_held_jobs_are_renewed_until_dropped(run: Run) -> None:
    """Every beat names what is held at that moment."""
    keeper, heart = run()
    first, second = keeper.hold(job(1)), keeper.hold(job(2, attempt=4))
    heart.wait(2)
    assert (heart.last(), heart.lease_s) == (((1, 1), (2, 4)), 3.0)
    keeper.drop(first)
    heart.wait(2)
    assert heart.last() == ((2, 4),)
    assert not first.cancel.is_set()
    assert not second.cancel.is_set()


def test_a_lease_whose_run_is_over_is_renewed_and_nothing_else(run: Run) -> None:
    """A spooled result keeps its job: no overtime, no shutdown, and the slot may drop its own lease."""
    clock = Clock()
    keeper, heart = run(clock=clock)
    first = keeper.hold(job())
    spooled = keeper.hold(job(), running=False)
    keeper.drop(first)
    clock.now_s += 1_000_000.0
    heart.wait(3)
    assert heart.last() == ((1, 1),)
    keeper.stop_all(StopReason.SHUTDOWN)
    assert (first.reason, spooled.reason) == (None, None)
    keeper.drop(spooled)
    assert keeper.held() == ()


def test_a_lease_whose_run_is_over_cannot_be_lost(run: Run) -> None:
    """A beat may find the job ended by the very result that is being committed: that is no news."""
    with capture_logs() as logs:
        keeper, heart = run(of_all(ours=False, cancelled=True))
        lease = keeper.hold(job(), running=False)
        heart.wait(3)
    assert lease.reason is None
    assert logs == []


def test_a_job_that_ended_meanwhile_is_not_lost(run: Run) -> None:
    """Between a completed job and its drop, a beat may find it gone: that is no lost lease."""

    def gone(held: Held) -> Sequence[LeaseState]:
        for lease in keeper.held():
            keeper.drop(lease)
        return of_all(ours=False)(held)

    keeper, heart = run(gone)
    lease = keeper.hold(job())
    assert heart.closed.acquire(timeout=PATIENCE_S)
    assert lease.reason is None


def test_an_outage_is_over_when_nothing_is_held_any_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No beat may come for hours then, and one that fails begins another outage, which is told of like the first."""
    monkeypatch.setattr("runner.base.logs.LOG_INTERVAL_S", 0.0)
    fails, over = "heartbeat_failing", "heartbeat_not_needed"

    def away(_held: Held) -> Sequence[LeaseState]:
        raise DatabaseUnavailableError("connection refused")

    with capture_logs() as logs:
        keeper, heart = run(away)
        for number in (1, 2):
            lease = keeper.hold(job(number))
            heart.wait(1)
            keeper.drop(lease)
            keeper.nudge()
            wait_until(
                lambda number=number: sum(line["event"] == over for line in logs) >= number,  # type: ignore[misc]  # mypy: default in lambda
                "the failed heartbeat is over",
            )
    assert [line["event"] for line in logs] == [fails, over] * 2


def test_a_run_that_does_not_come_back_is_stopped(run: Run) -> None:
    """`max_run_s`, and a grace in which the evaluation may still report by itself.

    The first reason counts: a job that was cancelled is not given back when the daemon stops.
    """
    cancelled = Lease(job(), deadline_s=0)
    assert [cancelled.stop(why) for why in (StopReason.CANCELLED, StopReason.SHUTDOWN)] == [True, False]
    assert cancelled.reason is StopReason.CANCELLED
    clock = Clock()
    keeper, heart = run(clock=clock)
    lease = keeper.hold(job())
    clock.now_s += 60.0 + OVERTIME_GRACE_S - 1
    heart.wait(3)
    assert lease.reason is None
    clock.now_s += 2
    assert lease.cancel.wait(PATIENCE_S)
    assert lease.reason is StopReason.OVERTIME


@pytest.mark.parametrize("answer", [of_all(cancelled=True), of_all()], ids=["cancelled", "overtime"])
def test_what_was_told_to_stop_and_does_not_is_given_up(run: Run, answer: Answer) -> None:
    """Renewed for ever, its job would run for ever; the result that is already there is renewed all the same."""
    clock = Clock()
    with capture_logs() as logs:
        keeper, heart = run(answer, clock=clock)
        keeper.hold(job(2), running=False)
        lease = keeper.hold(job())
        began_s = clock.now_s
        clock.now_s += 60.0 + OVERTIME_GRACE_S + 1
        assert lease.cancel.wait(PATIENCE_S)
        heart.wait(2)
        assert lease.abandon_s is not None
        # A beat may have told it to stop before the clock went on.
        assert lease.abandon_s in (began_s + STOPPING_S, clock.now_s + STOPPING_S)
        clock.now_s = lease.abandon_s - 1
        heart.wait(2)
        assert lease in keeper.held()
        clock.now_s += 2
        heart.wait(2)
        assert heart.last() == ((2, 1),)
    assert [line["told_because"] for line in logs if line["event"] == "run_does_not_stop"] == [lease.reason]
