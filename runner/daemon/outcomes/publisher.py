"""Publishes what happens to jobs: events for frontends, wake-ups for other daemons, progress of running jobs.

Owns a thread and a connection, open only while there is something to send, so that a slow or absent database never
delays an evaluation. No job depends on it: what cannot be sent within bounds is dropped and counted, and frontends poll
as well. Callers publish after the commit that an event tells of: a NOTIFY inside it would hold the database's commit
lock. docs/frontends.md describes the events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runner.base.errors import InfrastructureError
from runner.base.logs import get_logger
from runner.base.model import Claimed, Job, JobState, Json, Mode, Progress, Verdict
from runner.base.retry import Backoff
from runner.daemon.interfaces import StoreFactory
from runner.store import Ended, QueueStore, Reclaimed

_log = get_logger(__name__)

#: The least time between two posts of one job's progress: each is a write.
PERIOD_S: Final = 1.0
#: The least time between two notifications of one job's progress: the slowest listener empties their queue.
TELL_S: Final = 5.0
#: The pause after sending, in which messages gather: a busy host would else send every event on its own.
REST_S: Final = 0.025
#: The connection is closed after so long without a message.
IDLE_S: Final = 10.0
#: Events kept while the database is away; its restart loses none, half an hour loses the oldest.
MAX_EVENTS: Final = 1000
#: The longest pause between two attempts.
_CAP_S: Final = 5.0

_Key = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class _Batch:
    events: tuple[Json, ...]
    wake: tuple[str, ...]
    progress: tuple[tuple[Job, Progress], ...]


class EventPublisher:
    """Messages still to be sent. `run` is the body of its thread; all else is threadsafe and returns at once."""

    def __init__(self, store_factory: StoreFactory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store_factory = store_factory
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._events: deque[Json] = deque(maxlen=MAX_EVENTS)
        self._dropped = 0
        self._gpu_types: set[str] = set()
        #: The latest of each job, and when each was last posted.
        self._progress: dict[_Key, tuple[Job, Progress]] = {}
        self._posted_s: dict[_Key, float] = {}
        #: Job → time of its last progress notification. Only this thread uses it.
        self._told_s: dict[_Key, float] = {}

    def post_progress(self, job: Job, progress: Progress) -> None:
        """Publish how far a job is; only the latest of a second is sent."""
        with self._lock:
            self._progress[job.key] = (job, progress)
        self._wake.set()

    def forget_progress(self, job: Job) -> None:
        """The job has ended: drop progress that was not sent yet."""
        with self._lock:
            self._progress.pop(job.key, None)

    def publish(self, event: Json) -> None:
        """Send an event to frontends."""
        with self._lock:
            self._dropped += len(self._events) == MAX_EVENTS
            self._events.append(event)
        # Who clears it looks for events afterwards.
        if not self._wake.is_set():
            self._wake.set()

    def claimed(self, job: Job, *, host: str) -> None:
        """Publish that a host has begun to work on a job."""
        self.publish({"event": "claimed", "host": host, **job.about})

    def committed(self, job: Job, verdict: Verdict, *, submission_done: bool) -> None:
        """Publish a verdict that is committed, and wake daemons that may take the job that waited for it."""
        self.publish({"event": "done", **job.about, "verdict": verdict.value, "submission_done": submission_done})
        follows = job.mode is Mode.LEADERBOARD and not job.secret and verdict is Verdict.ACCEPTED
        if follows or job.mode is Mode.FINAL:
            self.wake(job.gpu_type)

    def ended(self, job: Claimed, how: Ended) -> None:
        """Publish that an attempt ended without a result, and wake daemons that may take the job next."""
        self._ended(job.about, how.state, submission_done=how.submission_done)

    def reclaimed(self, job: Reclaimed) -> None:
        """Publish what became of a reclaimed job, and wake daemons that may take it next."""
        about = {
            "submission_id": job.submission_id,
            "job_id": job.job_id,
            "gpu_type": job.gpu_type,
            "secret": job.secret,
        }
        self._ended(about, job.state, submission_done=job.submission_done)

    def _ended(self, about: Json, state: JobState, *, submission_done: bool) -> None:
        """The job is queued again, cancelled, or over as internal_error."""
        verdict = {"verdict": Verdict.INTERNAL_ERROR.value} if state is JobState.DONE else {}
        self.publish({"event": state.value, **about, **verdict, "submission_done": submission_done})
        if state is JobState.QUEUED:
            self.wake(about["gpu_type"])

    def wake(self, gpu_type: str) -> None:
        """Make the daemons that serve a GPU type look at the queue."""
        with self._lock:
            self._gpu_types.add(gpu_type)
        self._wake.set()

    def nudge(self) -> None:
        """Make the thread check its stop event."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, then send what is left if the database answers."""
        store = self._store_factory("publish")
        backoff = Backoff(cap_s=_CAP_S)
        used_s = self._clock()
        try:
            while not stop.is_set():
                self._wake.wait(self._rest_s())
                self._wake.clear()
                batch = self._take()
                if batch is None:
                    if self._clock() - used_s >= IDLE_S:
                        store.close()
                    continue
                used_s = self._clock()
                if self._send(store, batch):
                    backoff.reset()
                    stop.wait(REST_S)
                else:
                    backoff.wait(stop)
            if (batch := self._take()) is not None:
                self._send(store, batch)
        finally:
            store.close()

    def _rest_s(self) -> float:
        """How long nothing needs to be sent, unless news arrive: until some progress is due."""
        with self._lock:
            due_s = [self._posted_s[key] + PERIOD_S for key in self._progress if key in self._posted_s]
        return max(0.0, min([*due_s, self._clock() + _CAP_S]) - self._clock())

    def _take(self) -> _Batch | None:
        """Events and progress that may be sent now; None: nothing."""
        now_s = self._clock()
        with self._lock:
            self._posted_s = {key: at_s for key, at_s in self._posted_s.items() if now_s - at_s < PERIOD_S}
            due = [key for key in self._progress if key not in self._posted_s]
            self._posted_s.update(dict.fromkeys(due, now_s))
            batch = _Batch(
                events=tuple(self._events),
                wake=tuple(sorted(self._gpu_types)),
                progress=tuple(self._progress.pop(key) for key in due),
            )
            self._events.clear()
            self._gpu_types.clear()
        return batch if batch.events or batch.wake or batch.progress else None

    def _send(self, store: QueueStore, batch: _Batch) -> bool:
        """Send a batch; False: the database is away. Unsent messages wait, progress only until there is newer."""
        try:
            if batch.events or batch.wake:
                store.announce(events=batch.events, wake=batch.wake)
        except InfrastructureError as error:
            self._put_back(batch)
            self._post_again(batch.progress)
            _log.debug("events_not_published", events=len(batch.events), error=str(error))
            return False
        except Exception:  # noqa: BLE001 - a bug; frontends and hosts poll as well
            _log.exception("events_refused", events=batch.events, wake=batch.wake)
        self._log_dropped()
        now_s = self._clock()
        self._told_s = {key: at_s for key, at_s in self._told_s.items() if now_s - at_s < TELL_S}
        for number, (job, progress) in enumerate(batch.progress):
            tell = job.key not in self._told_s
            try:
                if store.progress(job, progress, tell=tell):
                    self._told_s.setdefault(job.key, now_s)
                else:
                    # Another transaction holds the job for a moment; this may be its last progress.
                    self._post_again([(job, progress)])
            except InfrastructureError as error:
                self._post_again(batch.progress[number:])
                _log.debug("progress_not_published", error=str(error))
                return False
        return True

    def _put_back(self, batch: _Batch) -> None:
        with self._lock:
            room = MAX_EVENTS - len(self._events)
            kept = batch.events[max(0, len(batch.events) - room) :]
            self._dropped += len(batch.events) - len(kept)
            self._events.extendleft(reversed(kept))
            self._gpu_types.update(batch.wake)
        self._wake.set()

    def _post_again(self, progress: Sequence[tuple[Job, Progress]]) -> None:
        """Send progress again later; the store ignores it for a job that has ended meanwhile."""
        with self._lock:
            for job, latest in progress:
                self._progress.setdefault(job.key, (job, latest))

    def _log_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning("events_dropped", count=dropped)
