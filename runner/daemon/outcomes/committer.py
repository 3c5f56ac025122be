"""Writes the results of a host's slots: a slot hands its result over and takes a job while the last is committed.

Owns the results that are not written yet, and two threads with a connection each while it needs one. The first writes:
what gathers while one commit is under way goes with the next. The second writes what has waited too long for the first,
so that a commit that hangs holds up nobody. A result is the settler's from `hand` on: its lease stays held until it is
committed, known to be too late, safe in the spool, or given up. How many wait is bounded: a slot that hands over one
too many waits for room, and gets no job meanwhile. Must not evaluate or claim. Called by the slots, and by the loop on
the way out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from runner import metrics
from runner.config import mask_password
from runner.daemon.interfaces import StoreFactory
from runner.daemon.leases import Lease, LeaseKeeper
from runner.daemon.outcomes import events
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.replay import SpoolReplayer
from runner.errors import DatabaseUnavailableError, StaleAttemptError
from runner.logs import get_logger, job_context
from runner.model import Job, JobResult
from runner.retry import Backoff
from runner.store import Completion, Store

_log = get_logger(__name__)

#: No more results than this in one transaction.
MAX_RESULTS: Final = 32
#: Where one commit follows another within the second of these, results wait for each other: for the first, or until
#: every slot has brought one. A result that comes alone is committed at once.
GATHER_S: Final = 0.0025
BUSY_S: Final = 0.025
#: A slot waits when so many results for each slot, or bytes of files, are not written yet: all of them die with a
#: process that is killed.
WAITING_PER_SLOT: Final = 2
MAX_WAITING_BYTES: Final = 64 << 20
#: What has waited so long goes on the second connection.
TURN_S: Final = 1.0
#: A result whose submission is held by somebody is tried again after pauses from the first to the second of these,
#: and left to the spool, whose delivery waits longer, after the third.
HELD_PAUSE_S: Final = 0.01
HELD_PAUSE_MAX_S: Final = 1.0
HELD_S: Final = 30.0
#: How long what the spool does not take waits for a database that is away. It waits in memory: a restart of the daemon
#: within that time loses it, and the job is evaluated again.
PATIENCE_S: Final = 1800.0
#: How long a slot that waits for room sleeps before it looks at its event again.
LOOK_S: Final = 1.0
#: The longest pause between two attempts for what waits in memory.
_CAP_S: Final = 5.0
#: The connection is closed after so long without a result.
IDLE_S: Final = 5.0
#: What the log says of a job whose end could not be written.
LEFT_TO_ITS_LEASE: Final = "job could not be settled; it is evaluated again when its lease expires"


class _PendingResult:
    """A result that is not written yet."""

    def __init__(self, job: Job, result: JobResult, slot: str, lease: Lease, now_s: float) -> None:
        self.job = job
        self.result = result
        self.slot = slot
        self.lease = lease
        self.size_bytes = sum(len(artifact.data) for artifact in result.artifacts)
        #: Not tried before; by the settler's clock.
        self.due_s = now_s
        #: A thread is writing it.
        self.taken = False
        #: Since when its submission is held by somebody, and how often that was found.
        self.held_since_s: float | None = None
        self.held_times = 0
        #: Since when it waits in memory for a database that is away, because the spool does not take it.
        self.waits_since_s: float | None = None
        #: It is the settler's no more.
        self.over = False
        #: The database does not take it, for this reason: the job is failed with it.
        self.refused: Exception | None = None


class ResultCommitter:
    """What so many slots have found. `run` and `run_late` are the bodies of its threads; all else is threadsafe.

    `on_empty` is called when nothing is left that was handed over; `give_up`, once set, ends all waiting.
    """

    def __init__(
        self,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        replayer: SpoolReplayer,
        *,
        slots: int,
        on_empty: Callable[[], None],
        give_up: threading.Event,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store_factory = store_factory
        self._keeper = keeper
        self._publisher = publisher
        self._replayer = replayer
        self._max_waiting = slots * WAITING_PER_SLOT
        self._on_empty = on_empty
        self._give_up = give_up
        self._patience_s = patience_s
        self._clock = clock
        #: Guards what follows, and tells that it has changed.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        #: Tells the thread that gathers that every slot has brought a result; under the same lock.
        self._complete = threading.Condition(self._lock)
        self._slots = slots
        #: In the order in which they came. An entry leaves when it is settled, so that a thread that breaks and is
        #: started again finds it.
        self._pending: dict[tuple[int, int], _PendingResult] = {}
        self._size_bytes = 0
        #: When results were last taken to be written.
        self._took_s = float("-inf")
        self._closed = False

    @property
    def pending(self) -> int:
        """How many results are neither written nor safe in the spool."""
        return len(self._pending)

    def submit(self, job: Job, result: JobResult, *, slot: str) -> None:
        """Take over a result and its lease; comes back at once, or when there is room again."""
        # From here on nothing can be stopped: the lease is only renewed, however long the database is away.
        handed = _PendingResult(job, result, slot, self._keeper.hold(job, running=False), self._clock())
        with self._changed:
            self._pending[job.key] = handed
            self._size_bytes += handed.size_bytes
            self._changed.notify_all()
            if sum(not one.taken for one in self._pending.values()) >= self._slots:
                self._complete.notify_all()
            while not self._has_room(job) and not self._give_up.is_set() and not self._closed:
                self._changed.wait(LOOK_S)
            closed = self._closed
        if closed:
            self._save(handed)

    def nudge(self) -> None:
        """Have the thread, and slots that wait for room, look at their events."""
        with self._lock:
            self._changed.notify_all()
            self._complete.notify_all()

    def close(self) -> None:
        """The threads have ended: what is left, or what a run finds that did not let go in time, goes to the spool."""
        with self._changed:
            self._closed = True
            left = tuple(self._pending.values())
        for one in left:
            self._save(one)

    def spool_pending(self) -> Sequence[Job]:
        """Spool what is not written yet, from another thread; the jobs whose results are not safe.

        If a commit that is under way goes through after all, the delivery finds that out.
        """
        with self._changed:
            handed = tuple(self._pending.values())
        return [one.job for one in handed if not self._spooled(one)]

    def run(self, stop: threading.Event) -> None:
        """Write until `stop` is set. The connection stays open while results keep coming."""
        self._work(stop, self._store_factory("commit"), self._next)

    def run_late(self, stop: threading.Event) -> None:
        """Write what has waited for TURN_S, until `stop` is set."""
        self._work(stop, self._store_factory("late commit"), self._late)

    def _save(self, one: _PendingResult) -> None:
        if not self._spooled(one):
            with job_context(one.job, slot=one.slot):
                _log.error(LEFT_TO_ITS_LEASE, error="the daemon has ended, and the spool does not take the result")

    def _has_room(self, job: Job) -> bool:
        return job.key not in self._pending or (
            len(self._pending) <= self._max_waiting and self._size_bytes <= MAX_WAITING_BYTES
        )

    # -- inside: everything below is the threads' -------------------------------------------------------------------

    def _work(
        self, stop: threading.Event, store: Store, take: Callable[[threading.Event], Sequence[_PendingResult]]
    ) -> None:
        backoff = Backoff(cap_s=_CAP_S)
        try:
            while not stop.is_set():
                batch = take(stop)
                if not batch:
                    store.close()
                    continue
                try:
                    self._write_batch(store, batch)
                finally:
                    with self._changed:
                        for one in batch:
                            one.taken = False
                        # There may be room now for slots that wait.
                        self._changed.notify_all()
                if any(one.waits_since_s is not None and not one.over for one in batch):
                    backoff.wait(self._give_up)
                else:
                    backoff.reset()
        finally:
            store.close()

    def _next(self, stop: threading.Event) -> Sequence[_PendingResult]:
        """Take what is due, waited for; empty: nothing came for a while, or `stop` was set."""
        until_s = self._clock() + IDLE_S
        with self._changed:
            while not self._due() and not stop.is_set() and (now_s := self._clock()) < until_s:
                due_s = [one.due_s for one in self._pending.values() if not one.taken]
                self._changed.wait(max(0.0, min([*due_s, until_s]) - now_s))
            if 0 < len(self._due()) < self._slots and time.monotonic() < self._took_s + BUSY_S:
                self._complete.wait(GATHER_S)
            self._took_s = time.monotonic()
            return self._take(self._due())

    def _late(self, stop: threading.Event) -> Sequence[_PendingResult]:
        """After a while, take what has been due for too long."""
        stop.wait(TURN_S)
        with self._changed:
            return self._take(self._due(TURN_S))

    def _due(self, age_s: float = 0.0) -> list[_PendingResult]:
        """Results that nobody writes and that have been due for so long; the lock is held."""
        until_s = self._clock() - age_s
        return [one for one in self._pending.values() if not one.taken and one.due_s <= until_s]

    def _take(self, due: Sequence[_PendingResult]) -> Sequence[_PendingResult]:
        """These, or the first of them, for nobody else to write; the lock is held."""
        batch = due[:MAX_RESULTS]
        for one in batch:
            one.taken = True
        return batch

    def _write_batch(self, store: Store, batch: Sequence[_PendingResult]) -> None:
        """Write results together, as far as the database takes them."""
        self._commit(store, [one for one in batch if one.refused is None])
        for one in batch:
            if one.refused is not None:
                self._fail(store, one, one.refused)

    def _commit(self, store: Store, batch: Sequence[_PendingResult]) -> None:
        if not batch:
            return
        try:
            outcomes = store.complete_all([(one.job, one.result) for one in batch])
        except DatabaseUnavailableError as error:
            for one in batch:
                self._spool_or_wait(one, error)
        except Exception as error:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            if len(batch) > 1:
                # One that cannot be written spoils no other.
                for one in batch:
                    self._commit(store, [one])
                return
            # E.g. a value PostgreSQL does not take. The job must still end: with the cause, and retried.
            (one,) = batch
            with job_context(one.job, slot=one.slot):
                _log.exception("job could not be settled")
            one.refused = error
        else:
            for one, outcome in zip(batch, outcomes, strict=True):
                self._apply_outcome(one, outcome)

    def _apply_outcome(self, one: _PendingResult, outcome: Completion | StaleAttemptError | None) -> None:
        """What one result's outcome means."""
        if one.waits_since_s is not None:
            with job_context(one.job, slot=one.slot):
                _log.info("database back: the job is settled")
            one.waits_since_s = None
        if outcome is None:
            self._retry_when_submission_is_free(one)
        elif isinstance(outcome, StaleAttemptError):
            with job_context(one.job, slot=one.slot):
                _log.warning("job is no longer ours: what was found is no verdict", error=str(outcome))
            metrics.uncommitted(one.job)
            self._finish(one)
        else:
            metrics.committed(one.job, one.result.verdict)
            self._publisher.publish(events.done(one.job, one.result.verdict, submission_done=outcome.submission_done))
            self._finish(one)

    def _retry_when_submission_is_free(self, one: _PendingResult) -> None:
        """Somebody holds it: tried again soon, and nobody else waits for that."""
        now_s = self._clock()
        if one.held_since_s is None:
            one.held_since_s = now_s
        one.due_s = now_s + min(HELD_PAUSE_S * 2.0**one.held_times, HELD_PAUSE_MAX_S)
        one.held_times = min(one.held_times + 1, 30)
        if now_s - one.held_since_s >= HELD_S:
            with job_context(one.job, slot=one.slot):
                if self._spooled(one):
                    _log.warning("its submission is held by somebody: the result waits in the spool")
                    self._finish(one)

    def _spool_or_wait(self, one: _PendingResult, error: DatabaseUnavailableError) -> None:
        """The database is away: to the spool, or it waits in memory while patience lasts."""
        with job_context(one.job, slot=one.slot):
            if one.refused is None and self._spooled(one):
                _log.warning("database away: the result waits in the spool", error=str(error))
                self._finish(one)
                return
            now_s = self._clock()
            if one.waits_since_s is None:
                one.waits_since_s = now_s
                _log.warning("database away: the job's end waits in memory", error=str(error))
            if now_s - one.waits_since_s > self._patience_s or self._give_up.is_set():
                _log.error(LEFT_TO_ITS_LEASE, error=str(error))
                self._finish(one)

    def _fail(self, store: Store, one: _PendingResult, refused: Exception) -> None:
        """End an attempt whose result is refused."""
        metrics.refused(one.job)
        cause = mask_password(f"unexpected {type(refused).__name__}: {refused}")
        with job_context(one.job, slot=one.slot):
            try:
                ended = store.fail(one.job, error=cause, report={"slot": one.slot}, slot=one.slot)
            except DatabaseUnavailableError as error:
                self._spool_or_wait(one, error)
                return
            except StaleAttemptError as error:
                _log.warning("job is no longer ours", error=str(error))
            except Exception:  # noqa: BLE001 - logged with the job's ids
                # Nothing is left to try.
                _log.exception(LEFT_TO_ITS_LEASE)
            else:
                self._publisher.ended(one.job, ended)
        self._finish(one)

    def _spooled(self, one: _PendingResult) -> bool:
        """Whether the result is safe on disk. What cannot be written down is not; the database will refuse it too."""
        try:
            return self._replayer.accept(one.job, one.result, slot=one.slot)
        except (TypeError, ValueError) as error:
            with job_context(one.job, slot=one.slot):
                _log.error("the result cannot be written down", error=str(error))
            return False

    def _finish(self, one: _PendingResult) -> None:
        # Nothing, if the delivery holds it now.
        self._keeper.drop(one.lease)
        with self._changed:
            one.over = True
            del self._pending[one.job.key]
            self._size_bytes -= one.size_bytes
            empty = not self._pending
        if empty:
            self._on_empty()
