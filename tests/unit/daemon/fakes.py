"""A database that answers as the test says, and what a slot and a delivery need around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError, StaleAttemptError
from runner.base.model import Job, JobResult, JobState, Json
from runner.daemon.leases import LeaseKeeper
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.replay import SpoolReplayer
from runner.daemon.outcomes.spool import Spool
from runner.store import Completion, Ended, Store


class FakeStore:
    """Takes what settles a job; remembers who wrote what."""

    def __init__(self) -> None:
        self.away = threading.Event()
        #: Jobs that are no longer ours, and those that the database does not have.
        self.stale: set[int] = set()
        self.gone: set[int] = set()
        #: Jobs whose results are refused, as for a value that PostgreSQL does not take.
        self.refused: set[int] = set()
        #: Jobs whose results take too long, while everything else works.
        self.slow: set[int] = set()
        self.completed: list[tuple[int, JobResult]] = []
        self.failed: list[tuple[int, str, str]] = []
        self.given_back: list[tuple[str, int]] = []
        self.closed = 0
        self.calls = 0
        #: Jobs whose submission is locked.
        self.held: set[int] = set()
        #: Called in the middle of every write.
        self.meanwhile: Callable[[], None] = lambda: None

    def complete(self, job: Job, result: JobResult) -> Completion:
        """Commit."""
        self._answer(job)
        if job.id in self.slow:
            raise DatabaseUnavailableError("canceling statement due to statement timeout")
        if job.id in self.refused:
            raise ValueError(f"a value of job {job.id} is not taken; password=hunter2")
        self.completed.append((job.id, result))
        return Completion(submission_done=True)

    def complete_all(self, results: Sequence[tuple[Job, JobResult]]) -> Sequence[Completion | StaleAttemptError | None]:
        """Commit together."""
        outcomes: list[Completion | StaleAttemptError | None] = []
        for job, result in results:
            if job.id in self.held:
                outcomes.append(None)
                continue
            try:
                outcomes.append(self.complete(job, result))
            except StaleAttemptError as error:
                outcomes.append(error)
        return outcomes

    def fail(self, job: Job, *, error: str, report: Json | None, slot: str) -> Ended:
        """Queue again."""
        self._answer(job)
        assert report == {"slot": slot}
        self.failed.append((job.id, error, slot))
        return Ended(state=JobState.QUEUED, submission_done=False)

    def release(self, job: Job, *, reason: str) -> Ended:
        """Queue again."""
        self._answer(job)
        assert reason
        self.given_back.append(("release", job.id))
        return Ended(state=JobState.QUEUED, submission_done=False)

    def cancelled(self, job: Job) -> Ended:
        """End."""
        self._answer(job)
        self.given_back.append(("cancelled", job.id))
        return Ended(state=JobState.CANCELLED, submission_done=True)

    def ping(self) -> None:
        """Answer, if it does at all."""
        if self.away.is_set():
            raise DatabaseUnavailableError("connection refused")

    def _answer(self, job: Job) -> None:
        self.calls += 1
        self.meanwhile()
        if self.away.is_set():
            raise DatabaseUnavailableError("connection refused")
        if job.id in self.stale:
            raise StaleAttemptError(f"job {job.id} is done at attempt 9")
        if job.id in self.gone:
            raise StaleAttemptError(f"job {job.id} is gone", gone=True)

    def close(self) -> None:
        """Count."""
        self.closed += 1


class Parts:
    """A spool with its replayer, a lease keeper and a publisher, on a fake store."""

    def __init__(self, directory: Path) -> None:
        self.store = FakeStore()
        config = Config(host_name="h", state_dir=directory)
        self.opened: list[str] = []
        self.keeper = LeaseKeeper(lambda: self.fake("heartbeat"), config, instance="i")
        self.publisher = EventPublisher(self.fake)
        self.spool = Spool(directory / "spool")
        self.now_s = 1000.0
        self.replayer = SpoolReplayer(self.spool, self.fake, self.keeper, self.publisher, clock=lambda: self.now_s)

    def fake(self, purpose: str, other: FakeStore | None = None) -> Store:
        """The store, or another one, as a factory's product."""
        self.opened.append(purpose)
        return cast("Store", other or self.store)

    def held(self) -> set[tuple[int, bool]]:
        """The jobs whose leases are held, and whether each still runs."""
        return {(lease.job.id, lease.deadline_s is not None) for lease in self.keeper.held()}

    def events(self) -> list[str]:
        """What would be announced, in one word each."""
        return [str(event["event"]) for event in self.publisher._events]
