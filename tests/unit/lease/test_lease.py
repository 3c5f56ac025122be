"""The lease keeper: what it renews, what it hears, and what it survives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from runner.errors import DatabaseUnavailableError
from runner.lease import OVERTIME_GRACE_S, Lease, LeaseKeeper, StopReason
from runner.model import Job, Mode
from runner.store import LeaseState

Held = Sequence[tuple[int, int]]


def job(job_id: int = 1, attempt: int = 1) -> Job:
    """Some job."""
    now = datetime.now(tz=UTC)
    return Job(
        id=job_id,
        attempt=attempt,
        submission_id=1,
        leaderboard="b",
        gpu_type="CPU",
        mode=Mode.TEST,
        secret=False,
        user_id="u",
        file_name="a.py",
        code=b"",
        task={},
        extra=None,
        secret_seed=1,
        failures=0,
        max_attempts=3,
        created_at=now,
        started_at=now,
    )


class FakeHeart:
    """A database that answers heartbeats as the test says."""

    def __init__(self, answer: Callable[[Held], Sequence[LeaseState]]) -> None:
        self.answer = answer
        self.beats: list[Held] = []
        self.enough = threading.Semaphore(0)
        self.closed = threading.Event()

    def heartbeat(self, *, host: str, lease_s: float, held: Held) -> Sequence[LeaseState]:
        """Remember and answer."""
        assert (host, lease_s) == ("h", 3.0)
        self.beats.append(held)
        self.enough.release()
        return self.answer(held)

    def close(self) -> None:
        """Remember."""
        self.closed.set()

    def last(self) -> Held:
        """What the last beat named."""
        return self.beats[-1]

    def wait(self, beats: int) -> None:
        """Wait for so many more heartbeats."""
        for _ in range(beats):
            assert self.enough.acquire(timeout=30)


class Clock:
    """A clock that the test moves."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def ours(held: Held) -> Sequence[LeaseState]:
    """All is well."""
    return [LeaseState(job_id=key, attempt=attempt, ours=True, cancel_requested=False) for key, attempt in held]


@pytest.fixture
def run() -> Iterator[Callable[..., tuple[LeaseKeeper, FakeHeart]]]:
    """Starts keepers with fast hearts; stops them when the test ends."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(
        answer: Callable[[Held], Sequence[LeaseState]] = ours, *, clock: Callable[[], float] = time.monotonic
    ) -> tuple[LeaseKeeper, FakeHeart]:
        heart = FakeHeart(answer)
        keeper = LeaseKeeper(lambda: heart, host="h", lease_s=3.0, heartbeat_s=0.01, max_run_s=60.0, clock=clock)
        threads.append(threading.Thread(target=keeper.run, args=(stop,)))
        threads[-1].start()
        return keeper, heart

    yield start
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_held_jobs_are_renewed_until_dropped(run: Callable[..., tuple[LeaseKeeper, FakeHeart]]) -> None:
    """Every beat names what is held at that moment, also when that is nothing: the host itself is alive."""
    keeper, heart = run()
    heart.wait(2)
    assert set(heart.beats) == {()}
    first, second = keeper.hold(job(1)), keeper.hold(job(2, attempt=4))
    heart.wait(2)
    assert heart.last() == ((1, 1), (2, 4))
    keeper.drop(first)
    heart.wait(2)
    assert heart.last() == ((2, 4),)
    assert not first.cancel.is_set()
    assert not second.cancel.is_set()


@pytest.mark.parametrize(
    ("is_ours", "cancel_requested", "reason"),
    [(True, True, StopReason.CANCELLED), (False, False, StopReason.LOST), (False, True, StopReason.LOST)],
)
def test_a_lost_lease_or_a_cancel_request_stops_the_run(
    run: Callable[..., tuple[LeaseKeeper, FakeHeart]],
    *,
    is_ours: bool,
    cancel_requested: bool,
    reason: StopReason,
) -> None:
    """The event is set and the reason is known."""
    keeper, _ = run(
        lambda held: [
            LeaseState(job_id=key, attempt=attempt, ours=is_ours, cancel_requested=cancel_requested)
            for key, attempt in held
        ]
    )
    lease = keeper.hold(job())
    assert lease.cancel.wait(30)
    assert lease.reason is reason


def test_a_job_that_ended_meanwhile_is_not_lost(run: Callable[..., tuple[LeaseKeeper, FakeHeart]]) -> None:
    """Between a completed job and its drop, a beat may find it gone: that is no lost lease of the next one."""
    leases: list[Lease] = []

    def gone(held: Held) -> Sequence[LeaseState]:
        for lease in leases:
            keeper.drop(lease)
        return [LeaseState(job_id=key, attempt=at, ours=False, cancel_requested=False) for key, at in held]

    keeper, heart = run(gone)
    heart.wait(1)
    # Of the same job, so that a beat between the next two lines drops it as well.
    leases.append(Lease(job(), deadline_s=0))
    leases[0] = keeper.hold(job())
    heart.wait(3)
    assert leases[0].reason is None


def test_an_outage_is_survived_and_said_once(run: Callable[..., tuple[LeaseKeeper, FakeHeart]]) -> None:
    """Failing beats stop no run; the log has one line when it begins and one when it ends."""
    down = threading.Event()

    def flaky(held: Held) -> Sequence[LeaseState]:
        if down.is_set():
            raise DatabaseUnavailableError("connection refused")
        return ours(held)

    with capture_logs() as logs:
        keeper, heart = run(flaky)
        lease = keeper.hold(job())
        heart.wait(1)
        down.set()
        heart.wait(3)
        down.clear()
        heart.wait(3)
    assert not lease.cancel.is_set()
    assert heart.beats[-1] == ((1, 1),)
    events = [line["event"] for line in logs]
    assert events == ["heartbeat fails; runs go on, their leases may expire", "heartbeat works again"]


def test_a_run_that_does_not_come_back_is_stopped(run: Callable[..., tuple[LeaseKeeper, FakeHeart]]) -> None:
    """`max_run_s`, and a grace in which the evaluation may still report by itself."""
    clock = Clock()
    keeper, heart = run(clock=clock)
    lease = keeper.hold(job())
    clock.now_s += 60.0 + OVERTIME_GRACE_S - 1
    heart.wait(3)
    assert lease.reason is None
    clock.now_s += 2
    assert lease.cancel.wait(30)
    assert lease.reason is StopReason.OVERTIME


def test_the_first_reason_to_stop_is_the_one_that_counts() -> None:
    """A job that was cancelled is not given back when the daemon stops."""
    lease = Lease(job(), deadline_s=0)
    assert lease.stop(StopReason.CANCELLED)
    assert not lease.stop(StopReason.SHUTDOWN)
    assert lease.reason is StopReason.CANCELLED


def test_stopping_all_reaches_every_held_job() -> None:
    """Going down tells each."""
    keeper = LeaseKeeper(lambda: FakeHeart(ours), host="h", lease_s=3.0, heartbeat_s=1.0, max_run_s=60.0)
    leases = [keeper.hold(job(number)) for number in range(3)]
    keeper.stop_all(StopReason.SHUTDOWN)
    assert {lease.reason for lease in leases} == {StopReason.SHUTDOWN}
    assert all(lease.cancel.is_set() for lease in leases)
