"""The progress reporter: never faster than its period, the latest wins, a broken database costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from runner.daemon.progress import ProgressReporter
from runner.errors import DatabaseUnavailableError
from runner.model import Job, Progress
from runner.store import Store
from tests.unit.lease.test_lease import job


class FakeStore:
    """A store that remembers progress, and holds up the first post until the test lets it through."""

    def __init__(self) -> None:
        self.posts: list[tuple[int, int]] = []
        self.arrived = threading.Semaphore(0)
        self.let_through = threading.Event()
        self.fail = False

    def progress(self, job: Job, progress: Progress) -> None:
        """Remember it."""
        self.arrived.release()
        assert self.let_through.wait(30)
        if self.fail:
            raise DatabaseUnavailableError("connection refused")
        self.posts.append((job.id, progress.done))

    def close(self) -> None:
        """Nothing to close."""


class Reporting:
    """A reporter at work."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.reporter = ProgressReporter(lambda _purpose: cast("Store", self.store), period_s=0.05)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.reporter.run, args=(self.stop,))
        self.thread.start()

    def post(self, job_id: int, done: int) -> None:
        """Report for a job."""
        self.reporter.post(job(job_id), Progress(phase="test", done=done, total=100))


@pytest.fixture
def reporting() -> Iterator[Reporting]:
    """A reporter whose thread ends with the test."""
    started = Reporting()
    yield started
    started.store.let_through.set()
    started.stop.set()
    started.reporter.nudge()
    started.thread.join(30)
    assert not started.thread.is_alive()


def test_only_the_latest_is_posted_and_posting_blocks_nobody(reporting: Reporting) -> None:
    """A hundred reports while the database is slow are two posts: the first and the last."""
    reporting.post(1, 0)
    assert reporting.store.arrived.acquire(timeout=30)
    for done in range(1, 101):
        reporting.post(1, done)
    reporting.store.let_through.set()
    assert reporting.store.arrived.acquire(timeout=30)
    reporting.post(2, 7)
    assert reporting.store.arrived.acquire(timeout=30)
    assert reporting.store.posts[:2] == [(1, 0), (1, 100)]


def test_a_job_that_ended_is_not_posted_any_more(reporting: Reporting) -> None:
    """What was waiting when the job ended is dropped."""
    reporting.post(1, 0)
    assert reporting.store.arrived.acquire(timeout=30)
    reporting.post(2, 1)
    reporting.reporter.forget(job(2))
    reporting.post(3, 1)
    reporting.store.let_through.set()
    assert reporting.store.arrived.acquire(timeout=30)
    reporting.post(4, 1)
    assert reporting.store.arrived.acquire(timeout=30)
    assert [job_id for job_id, _ in reporting.store.posts[:2]] == [1, 3]


def test_a_database_that_is_away_loses_progress_and_nothing_else(reporting: Reporting) -> None:
    """The thread goes on, and posts again when it can."""
    reporting.store.fail = True
    reporting.store.let_through.set()
    reporting.post(1, 1)
    assert reporting.store.arrived.acquire(timeout=30)
    reporting.store.fail = False
    reporting.post(1, 2)
    assert reporting.store.arrived.acquire(timeout=30)
    reporting.post(1, 3)
    assert reporting.store.arrived.acquire(timeout=30)
    assert reporting.store.posts[0] in ((1, 1), (1, 2))
