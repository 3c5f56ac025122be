"""Posts the progress of running jobs to the database: the latest of each job, at most once a second.

Owns a connection of its own, open only while something is posted, so that a slow or absent database never holds up an
evaluation, which calls `post` from the thread that reads the container's report.
"""

from __future__ import annotations

import threading
from typing import Final

from runner.daemon.ports import StoreFactory
from runner.errors import InfrastructureError
from runner.logs import get_logger
from runner.model import Job, Progress
from runner.store import Store

_log = get_logger(__name__)

#: The least time between two posts; one notification is one database-wide commit lock.
PERIOD_S: Final = 1.0
#: The connection is closed after so long without a post.
IDLE_S: Final = 10.0


class ProgressReporter:
    """Keeps the latest progress per job. `run` is the body of its thread; everything else is threadsafe."""

    def __init__(self, store_factory: StoreFactory, *, period_s: float = PERIOD_S) -> None:
        self._store_factory = store_factory
        self._period_s = period_s
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._latest: dict[tuple[int, int], tuple[Job, Progress]] = {}

    def post(self, job: Job, progress: Progress) -> None:
        """Note how far a job is; returns at once."""
        with self._lock:
            self._latest[job.id, job.attempt] = (job, progress)
        self._wake.set()

    def forget(self, job: Job) -> None:
        """The job has ended: what was not posted yet no longer matters."""
        with self._lock:
            self._latest.pop((job.id, job.attempt), None)

    def nudge(self) -> None:
        """Have the thread look at its stop event."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Post until `stop` is set. Progress that cannot be posted is lost: the result is what counts."""
        store: Store | None = None
        idle_s = 0.0
        try:
            while not stop.is_set():
                if not self._wake.wait(self._period_s):
                    idle_s += self._period_s
                    if store is not None and idle_s >= IDLE_S:
                        store.close()
                        store = None
                    continue
                idle_s = 0.0
                store = store or self._store_factory("progress")
                self._post_all(store)
                stop.wait(self._period_s)
        finally:
            if store is not None:
                store.close()

    def _post_all(self, store: Store) -> None:
        self._wake.clear()
        with self._lock:
            pending = list(self._latest.values())
            self._latest.clear()
        for job, progress in pending:
            try:
                store.progress(job, progress)
            except InfrastructureError as error:
                _log.debug("progress not posted", job=job.id, error=str(error))
                return
