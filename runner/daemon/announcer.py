"""Tells the world what happens to jobs: events for frontends, wake-ups for other daemons, the progress of what runs.

Owns a thread and a connection, open only while there is something to tell, so that a slow or absent database never
holds up an evaluation. Nothing here is needed for a job to end right: what cannot be told within bounds is dropped and
counted, and frontends poll as well. Called by slots, delivery and the loop, after what they tell of is committed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runner.backoff import Backoff
from runner.daemon import events
from runner.daemon.ports import StoreFactory
from runner.errors import InfrastructureError
from runner.logs import get_logger
from runner.model import Claimed, Job, JobState, Json, Progress
from runner.store import Ended, Store

_log = get_logger(__name__)

#: The least time between two posts of one job's progress: each is a write.
PERIOD_S: Final = 1.0
#: The least time between two notifications of it, which fill a queue that the cluster's slowest listener empties.
TELL_S: Final = 5.0
#: The pause after telling, in which news gathers: a busy host would announce every event on its own.
REST_S: Final = 0.025
#: The connection is closed after so long without anything to tell.
IDLE_S: Final = 10.0
#: Events kept for a database that is away; a restart of it costs none, half an hour costs the oldest.
MAX_EVENTS: Final = 1000
#: The longest pause between two attempts to tell.
_CAP_S: Final = 5.0

_Key = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class _Batch:
    events: tuple[Json, ...]
    wake: tuple[str, ...]
    progress: tuple[tuple[Job, Progress], ...]


class Announcer:
    """What is still to be told. `run` is the body of its thread; everything else is threadsafe and returns at once."""

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
        #: When frontends were last told of each; only the thread uses it.
        self._told_s: dict[_Key, float] = {}

    def post(self, job: Job, progress: Progress) -> None:
        """Show how far a job is; only the latest of a second is shown."""
        with self._lock:
            self._progress[job.key] = (job, progress)
        self._wake.set()

    def forget(self, job: Job) -> None:
        """The job has ended: progress that was not shown yet no longer matters."""
        with self._lock:
            self._progress.pop(job.key, None)

    def event(self, event: Json) -> None:
        """Tell frontends."""
        with self._lock:
            self._dropped += len(self._events) == MAX_EVENTS
            self._events.append(event)
        self._wake.set()

    def ended(self, job: Claimed, how: Ended) -> None:
        """Tell how an attempt ended that brought no result, and wake whoever may take the job next."""
        self.event(events.ended(job, how))
        if how.state is JobState.QUEUED:
            self.wake(job.gpu_type)

    def wake(self, gpu_type: str) -> None:
        """Have the daemons that serve a GPU type look at the queue."""
        with self._lock:
            self._gpu_types.add(gpu_type)
        self._wake.set()

    def nudge(self) -> None:
        """Have the thread look at its stop event."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Tell until `stop` is set, and then what is left, if the database is there."""
        store = self._store_factory("announce")
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
        """How long nothing needs to be done, if nobody comes with news: until some progress may be posted."""
        with self._lock:
            due_s = [self._posted_s[key] + PERIOD_S for key in self._progress if key in self._posted_s]
        return max(0.0, min([*due_s, self._clock() + _CAP_S]) - self._clock())

    def _take(self) -> _Batch | None:
        """What may be told now; None: nothing."""
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

    def _send(self, store: Store, batch: _Batch) -> bool:
        """Tell; False: the database is away. What was not told then waits, progress unless there is newer."""
        try:
            if batch.events or batch.wake:
                store.announce(events=batch.events, wake=batch.wake)
        except InfrastructureError as error:
            self._put_back(batch)
            self._post_again(batch.progress)
            _log.debug("not announced", events=len(batch.events), error=str(error))
            return False
        except Exception:  # noqa: BLE001 - logged where it is known which one it was
            if not self._send_one_by_one(store, batch):
                self._post_again(batch.progress)
                return False
        self._say_what_was_dropped()
        now_s = self._clock()
        self._told_s = {key: at_s for key, at_s in self._told_s.items() if now_s - at_s < TELL_S}
        for number, (job, progress) in enumerate(batch.progress):
            tell = job.key not in self._told_s
            try:
                if store.progress(job, progress, tell=tell):
                    self._told_s.setdefault(job.key, now_s)
                else:
                    # Whoever holds the job has it for a moment; this may be the last there is to show of it.
                    self._post_again([(job, progress)])
            except InfrastructureError as error:
                self._post_again(batch.progress[number:])
                _log.debug("progress not posted", error=str(error))
                return False
        return True

    def _send_one_by_one(self, store: Store, batch: _Batch) -> bool:
        """Something in it cannot be told, and is to spoil nothing else; False: the database is away, the rest waits."""
        parts = [_Batch(events=(event,), wake=(), progress=()) for event in batch.events]
        parts += [_Batch(events=(), wake=(gpu_type,), progress=()) for gpu_type in batch.wake]
        for number, part in enumerate(parts):
            try:
                store.announce(events=part.events, wake=part.wake)
            except InfrastructureError:
                left = parts[number:]
                events_left = tuple(event for one in left for event in one.events)
                wake_left = tuple(gpu_type for one in left for gpu_type in one.wake)
                self._put_back(_Batch(events=events_left, wake=wake_left, progress=()))
                return False
            except Exception:  # noqa: BLE001 - logged
                # A bug, or a value that PostgreSQL does not take: told again it would be refused again.
                _log.exception("this cannot be told and is dropped", events=part.events, wake=part.wake)
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
        """Post it with the next that is due; for a job that has ended meanwhile the store then finds nothing to do."""
        with self._lock:
            for job, latest in progress:
                self._progress.setdefault(job.key, (job, latest))

    def _say_what_was_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning(
                "events were dropped while the database was away; frontends find out by polling", count=dropped
            )
