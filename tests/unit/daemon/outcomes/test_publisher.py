"""The publisher: never in the way of an evaluation, progress once a second, events at once, all of it bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError
from runner.base.model import Job, Json, Mode, Progress, Verdict
from runner.daemon.outcomes.publisher import MAX_EVENTS, PERIOD_S, TELL_S, EventPublisher
from runner.store import Store
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S
from tests.unit import samples
from tests.unit.daemon.test_leases import job


class FakeStore:
    """A store that remembers what it was told, can be away, and can be slow."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.wakes: list[str] = []
        self.calls = 0
        self.posts: list[tuple[int, int]] = []
        #: Those of which frontends were told.
        self.told: list[tuple[int, int]] = []
        self.away = False
        #: An event that PostgreSQL does not take.
        self.unfit: Json | None = None
        #: Jobs that are locked.
        self.held: set[int] = set()
        self.let_through = threading.Event()
        self.let_through.set()
        self.closed = 0
        self.something = threading.Semaphore(0)

    def announce(self, *, events: Sequence[Json] = (), wake: Sequence[str] = ()) -> None:
        """Remember it."""
        self._answer()
        if self.unfit in events:
            raise ValueError("a payload that is not taken")
        self.calls += 1
        self.events += events
        self.wakes += wake
        self.something.release()

    def progress(self, job: Job, progress: Progress, *, tell: bool) -> bool:
        """Remember it, unless the job is locked."""
        self._answer()
        if job.id not in self.held:
            self.posts.append((job.id, progress.done))
            self.told += [(job.id, progress.done)] if tell else []
        self.something.release()
        return job.id not in self.held

    def _answer(self) -> None:
        assert self.let_through.wait(PATIENCE_S)
        if self.away:
            self.something.release()
            raise DatabaseUnavailableError("connection refused")

    def close(self) -> None:
        """Count."""
        self.closed += 1

    def wait(self) -> None:
        """Wait until it was called once more."""
        assert self.something.acquire(timeout=PATIENCE_S)


class Announcing:
    """A publisher at work."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = FakeStore()
        self.publisher = EventPublisher(self._store, clock=self.clock)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.publisher.run, args=(self.stop,))

    def _store(self, purpose: str) -> Store:
        assert purpose == "publish"
        return cast("Store", self.store)

    def start(self) -> None:
        """Let its thread run."""
        self.thread.start()

    def post_progress(self, job_id: int, done: int) -> None:
        """Report for a job."""
        self.publisher.post_progress(job(job_id), Progress(phase="test", done=done, total=100))

    def pass_on(self) -> None:
        """Tell one batch, in this thread."""
        batch = self.publisher._take()
        if batch is not None:
            self.publisher._send(cast("Store", self.store), batch)

    def end(self) -> None:
        """Stop the thread."""
        self.stop.set()
        self.publisher.nudge()
        if self.thread.is_alive():
            self.thread.join(PATIENCE_S)
            assert not self.thread.is_alive()


@pytest.fixture
def announcing() -> Iterator[Announcing]:
    """A publisher whose thread, if started, ends with the test."""
    made = Announcing()
    yield made
    made.store.let_through.set()
    made.end()


def test_events_are_told_at_once_and_those_that_wait_together(announcing: Announcing) -> None:
    """In order; a hundred that come while the database is slow are one call."""
    announcing.start()
    announcing.publisher.publish({"n": 0})
    announcing.store.wait()
    announcing.store.let_through.clear()
    announcing.publisher.publish({"n": 1})
    for number in range(2, 101):
        announcing.publisher.publish({"n": number})
    announcing.publisher.wake("H100")
    announcing.publisher.wake("H100")
    announcing.store.let_through.set()
    while len(announcing.store.events) < 101:
        announcing.store.wait()
    assert [event["n"] for event in announcing.store.events] == list(range(101))
    assert announcing.store.calls <= 3
    announcing.end()
    assert announcing.store.wakes == ["H100"]


@pytest.mark.parametrize(
    ("mode", "secret", "verdict", "woken"),
    [
        (Mode.LEADERBOARD, False, Verdict.ACCEPTED, ["CPU"]),
        (Mode.LEADERBOARD, False, Verdict.WRONG_ANSWER, []),
        (Mode.LEADERBOARD, True, Verdict.ACCEPTED, []),
        (Mode.TEST, False, Verdict.ACCEPTED, []),
        (Mode.FINAL, True, Verdict.WRONG_ANSWER, ["CPU"]),
    ],
)
def test_a_verdict_that_lets_another_job_begin_wakes_daemons(
    announcing: Announcing, mode: Mode, verdict: Verdict, woken: list[str], *, secret: bool
) -> None:
    """An idle host would else find it when it polls; whatever the verdict, frontends are told."""
    announcing.start()
    announcing.publisher.committed(samples.job(mode=mode, secret=secret), verdict, submission_done=False)
    announcing.store.wait()
    announcing.end()
    assert [event["event"] for event in announcing.store.events] == ["done"]
    assert announcing.store.wakes == woken


def test_progress_is_posted_once_a_second_per_job_and_the_latest_wins(announcing: Announcing) -> None:
    """However often the evaluation reports, and other jobs do not wait for it."""
    for done in range(10):
        announcing.post_progress(1, done)
        announcing.pass_on()
    assert announcing.store.posts == [(1, 0)]
    announcing.post_progress(2, 5)
    announcing.pass_on()
    assert announcing.store.posts == [(1, 0), (2, 5)]
    announcing.clock.now_s += PERIOD_S
    announcing.pass_on()
    assert announcing.store.posts == [(1, 0), (2, 5), (1, 9)]


def test_frontends_are_told_every_five_seconds_per_job(announcing: Announcing) -> None:
    """The first progress at once; each second's is written all the same. What was not written was not told."""
    announcing.store.held = {2}
    for second in range(11):
        announcing.post_progress(1, second)
        announcing.post_progress(2, second)
        announcing.pass_on()
        announcing.store.held = set()
        announcing.clock.now_s += PERIOD_S
    assert [done for number, done in announcing.store.posts if number == 1] == list(range(11))
    assert [done for number, done in announcing.store.told if number == 1] == [0, 5, 10]
    assert [done for number, done in announcing.store.told if number == 2] == [1, 6]
    assert TELL_S == 5 * PERIOD_S


def test_the_last_progress_of_a_locked_job_is_posted_later(announcing: Announcing) -> None:
    """It delays nothing, nothing newer is overtaken by it, and it is not posted once the job has ended."""
    announcing.store.held = {1, 2, 3}
    for number in (1, 2, 3):
        announcing.post_progress(number, 7)
    announcing.post_progress(4, 7)
    announcing.pass_on()
    assert announcing.store.posts == [(4, 7)]
    announcing.post_progress(2, 8)
    announcing.publisher.forget_progress(job(3))
    announcing.store.held = set()
    announcing.pass_on()
    assert announcing.store.posts == [(4, 7)], "not before its second is over"
    announcing.clock.now_s += PERIOD_S
    announcing.pass_on()
    assert sorted(announcing.store.posts) == [(1, 7), (2, 8), (4, 7)]


def test_nothing_that_is_called_by_an_evaluation_waits_for_the_database(announcing: Announcing) -> None:
    """The database hangs in the middle of a call: posting and announcing return all the same."""
    announcing.start()
    announcing.store.let_through.clear()
    announcing.publisher.publish({"n": 0})
    begin_s = time.monotonic()
    for number in range(1000):
        announcing.post_progress(number, 1)
        announcing.publisher.publish({"n": number})
        announcing.publisher.wake("H100")
        announcing.publisher.forget_progress(job(number))
    # The fake would hold each of these calls for so long.
    assert time.monotonic() - begin_s < PATIENCE_S


def test_events_survive_a_short_outage_in_order(announcing: Announcing) -> None:
    """A restart of the database costs no event, and the last progress is shown after it.

    What cannot be told is dropped: the log says what, and what comes later is told.
    """
    announcing.store.away = True
    announcing.publisher.publish({"n": 0})
    announcing.publisher.wake("H100")
    announcing.post_progress(1, 1)
    announcing.pass_on()
    announcing.publisher.publish({"n": 1})
    announcing.pass_on()
    announcing.store.away = False
    announcing.publisher.publish({"n": 2})
    announcing.pass_on()
    assert [event["n"] for event in announcing.store.events] == [0, 1, 2]
    assert announcing.store.wakes == ["H100"]
    announcing.clock.now_s += PERIOD_S
    announcing.store.unfit = {"n": 3}
    announcing.publisher.publish({"n": 3})
    with capture_logs() as logs:
        announcing.pass_on()
    announcing.publisher.publish({"n": 4})
    announcing.pass_on()
    assert [event["n"] for event in announcing.store.events] == [0, 1, 2, 4]
    assert announcing.store.posts == [(1, 1)]
    assert [line["events"] for line in logs if line["log_level"] == "error"] == [({"n": 3},)]


def test_half_an_hour_of_events_is_bounded_and_the_loss_is_said_once(announcing: Announcing) -> None:
    """The newest are kept; the log has one line, when the database is back, with the number."""
    announcing.store.away = True
    with capture_logs() as logs:
        for number in range(1800 * 2):
            announcing.publisher.publish({"n": number})
            announcing.post_progress(number, 1)
            announcing.publisher.forget_progress(job(number - 1))
            if number % 10 == 0:
                announcing.clock.now_s += 5.0
                announcing.pass_on()
        assert len(announcing.publisher._events) <= MAX_EVENTS
        assert [line for line in logs if line["log_level"] != "debug"] == []
        announcing.store.away = False
        announcing.pass_on()
    assert [event["n"] for event in announcing.store.events] == list(range(3600 - MAX_EVENTS, 3600))
    assert [line["count"] for line in logs if line["log_level"] == "warning"] == [3600 - MAX_EVENTS]
    announcing.clock.now_s += 5.0
    announcing.pass_on()
    assert len(announcing.publisher._posted_s) <= 10
    assert announcing.publisher._progress == {}


@pytest.mark.parametrize("away", [False, True])
def test_what_is_left_at_the_end_is_told_if_the_database_is_there(announcing: Announcing, *, away: bool) -> None:
    """The last thing a stopping daemon does is to give jobs back: others are to hear of it."""
    announcing.store.away = away
    announcing.stop.set()
    announcing.publisher.publish({"event": "queued"})
    announcing.publisher.wake("H100")
    announcing.start()
    announcing.thread.join(PATIENCE_S)
    assert not announcing.thread.is_alive()
    assert announcing.store.events == ([] if away else [{"event": "queued"}])
    assert announcing.store.wakes == ([] if away else ["H100"])
    assert announcing.store.closed == 1
