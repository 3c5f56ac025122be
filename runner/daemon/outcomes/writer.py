"""Writes how jobs end: a slot submits the outcome and takes the next job while this one is written.

Owns outcomes that are not written yet, and three threads, each with a connection while it needs one. The first thread
commits results; those that arrive during a commit go into the next one. The second thread commits results that have
waited too long for the first, so that a commit that hangs delays no other result. The third thread writes how attempts
without a result ended: such a write may wait for a lock. The writer holds an outcome's lease from `submit` until the
outcome is written, known to be too late, safe in the spool, or given up. The number of waiting outcomes is bounded: a
slot that submits one too many waits, and gets no job meanwhile. Must not evaluate or claim.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runner.base import metrics
from runner.base.database_address import mask_password
from runner.base.errors import DatabaseUnavailableError, StaleAttemptError
from runner.base.logs import get_logger, job_context
from runner.base.model import Job, JobResult
from runner.base.retry import Backoff
from runner.daemon.interfaces import StoreFactory
from runner.daemon.leases import Lease, LeaseKeeper
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.replay import SpoolReplayer
from runner.store import Completion, Ended, QueueStore

_log = get_logger(__name__)

#: No more results than this in one transaction.
MAX_RESULTS: Final = 32
#: A slot waits when so many results per slot are not written yet: a killed process loses them all.
WAITING_PER_SLOT: Final = 6
#: The same for bytes of files.
MAX_WAITING_BYTES: Final = 64 << 20
#: Results that have waited so long go on the second connection.
TURN_S: Final = 1.0
#: A result whose submission is locked is tried again after pauses from HELD_PAUSE_S to HELD_PAUSE_MAX_S. After HELD_S
#: it goes to the spool, whose replay waits longer.
HELD_PAUSE_S: Final = 0.01
HELD_PAUSE_MAX_S: Final = 1.0
HELD_S: Final = 30.0
#: How long an outcome that is not spooled waits for a database that is away. It waits in memory: a restart within that
#: time loses it, and the job is evaluated again.
PATIENCE_S: Final = 1800.0
#: The same once the daemon is to end, for an attempt without a result: little is lost with it.
LEAVING_PATIENCE_S: Final = 30.0
#: How often a slot that waits for room checks its event.
LOOK_S: Final = 1.0
#: The longest pause between two attempts for results in memory.
_CAP_S: Final = 5.0
#: The connection is closed after so long without a result.
IDLE_S: Final = 5.0
#: The log event of a job whose end could not be written.
LEFT_TO_ITS_LEASE: Final = "job_left_to_its_lease"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """An attempt that failed through no fault of the submission; the job is retried."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """A run that was stopped because its job was cancelled."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """A job that goes back to the queue at no cost."""

    reason: str


Ending = Failed | Cancelled | Released
Outcome = JobResult | Ending


class _Pending:
    """An outcome that is not written yet."""

    def __init__(self, job: Job, outcome: Outcome, slot: str, lease: Lease, now_s: float) -> None:
        self.job = job
        self.slot = slot
        self.lease = lease
        self.result = outcome if isinstance(outcome, JobResult) else None
        #: How the attempt ends without a result. Set later for a result that the database refuses.
        self.ending = None if isinstance(outcome, JobResult) else outcome
        files = self.result.artifacts if self.result is not None else ()
        self.size_bytes = sum(len(artifact.data) for artifact in files) if files else 0
        #: Not tried before this time, on the writer's clock.
        self.due_s = now_s
        #: A thread is writing it.
        self.taken = False
        #: Since when its submission is locked, and how often that was found.
        self.held_since_s: float | None = None
        self.held_times = 0
        #: Since when it waits in memory, because the database is away and it is not spooled. And since when it has
        #: waited in a daemon that is to end.
        self.waits_since_s: float | None = None
        self.leaving_since_s: float | None = None
        #: The writer is done with it.
        self.over = False


class OutcomeWriter:
    """The outcomes of so many slots. `run`, `run_late` and `run_endings` are the bodies of its threads.

    All else is threadsafe.

    `leaving` says whether the daemon is to end; then `wake` is set as soon as no submitted outcome is left. `give_up`,
    once set, ends all waiting.
    """

    def __init__(
        self,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        replayer: SpoolReplayer,
        *,
        slots: int,
        wake: threading.Event,
        leaving: Callable[[], bool],
        give_up: threading.Event,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store_factory = store_factory
        self._keeper = keeper
        self._publisher = publisher
        self._replayer = replayer
        self._max_waiting = slots * WAITING_PER_SLOT
        self._wake = wake
        self._leaving = leaving
        self._give_up = give_up
        self._patience_s = patience_s
        self._clock = clock
        #: Guards the attributes below.
        self._lock = threading.Lock()
        #: What is announced under this lock, apart, so that it wakes no thread in vain: a result, an ending, that
        #: there may be room for slots that wait.
        self._result_came = threading.Condition(self._lock)
        self._ending_came = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        #: In order of arrival. An entry leaves when it is finished, so that a thread that breaks and is started again
        #: finds it.
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._size_bytes = 0
        self._closed = False

    @property
    def pending(self) -> int:
        """How many outcomes are neither written nor safe in the spool."""
        return len(self._pending)

    def submit(self, job: Job, outcome: Outcome, *, slot: str) -> None:
        """Take how a job ended, and its lease. Returns at once, or when there is room again."""
        # The run is over, so a stop request has no effect; the lease is renewed however long the database is away.
        handed = _Pending(job, outcome, slot, self._keeper.hold(job, running=False), self._clock())
        with self._lock:
            self._pending[job.key] = handed
            self._size_bytes += handed.size_bytes
            (self._result_came if handed.ending is None else self._ending_came).notify()
            while not self._has_room(job) and not self._give_up.is_set() and not self._closed:
                self._room.wait(LOOK_S)
            closed = self._closed
        if closed:
            self._save(handed)

    def wait_until_over(self, job: Job, timeout_s: float) -> None:
        """Wait until the outcome of a job is written or given up; at most `timeout_s`."""
        until_s = self._clock() + timeout_s
        with self._lock:
            while job.key in self._pending and not self._give_up.is_set() and not self._closed:
                left_s = until_s - self._clock()
                if left_s <= 0:
                    return
                self._room.wait(left_s)

    def nudge(self) -> None:
        """Make the threads, and slots that wait for room, check their events."""
        with self._lock:
            for announced in (self._result_came, self._ending_came, self._room):
                announced.notify_all()

    def close(self) -> None:
        """The threads have ended: what is left, or submitted from now on, goes to the spool."""
        with self._lock:
            self._closed = True
            left = tuple(self._pending.values())
        for one in left:
            self._save(one)

    def spool_pending(self) -> Sequence[Job]:
        """Spool what is not written yet, from another thread; the jobs whose outcomes are not safe.

        If a commit in progress succeeds after all, the replayer finds that out.
        """
        with self._lock:
            handed = tuple(self._pending.values())
        return [one.job for one in handed if not self._spooled(one)]

    def run(self, stop: threading.Event) -> None:
        """Commit results until `stop` is set. The connection stays open while results keep coming."""
        self._work(stop, self._store_factory("commit"), self._next)

    def run_late(self, stop: threading.Event) -> None:
        """Commit results that have waited for TURN_S, until `stop` is set."""
        self._work(stop, self._store_factory("late commit"), self._late)

    def run_endings(self, stop: threading.Event) -> None:
        """Write endings until `stop` is set."""
        self._work(stop, self._store_factory("ending"), self._next_endings)

    def _save(self, one: _Pending) -> None:
        if not self._spooled(one):
            with job_context(one.job, slot=one.slot):
                _log.error(LEFT_TO_ITS_LEASE, error="the daemon has ended, and the spool does not take it")

    def _has_room(self, job: Job) -> bool:
        return job.key not in self._pending or (
            len(self._pending) <= self._max_waiting and self._size_bytes <= MAX_WAITING_BYTES
        )

    # -- called by the threads only ----------------------------------------------------------------------------------

    def _work(
        self, stop: threading.Event, store: QueueStore, take: Callable[[threading.Event], Sequence[_Pending]]
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
                    with self._lock:
                        for one in batch:
                            one.taken = False
                        self._room.notify_all()
                        if not all(one.over for one in batch):
                            # It is to be tried again, or has become an ending.
                            self._result_came.notify()
                            self._ending_came.notify()
                if any(one.waits_since_s is not None and not one.over for one in batch):
                    backoff.wait(self._give_up)
                else:
                    backoff.reset()
        finally:
            store.close()

    def _next(self, stop: threading.Event) -> Sequence[_Pending]:
        """Take results that are due, waiting for them; empty: none came for a while, or `stop` was set."""
        with self._lock:
            self._wait_until_due(stop, endings=False)
            return self._take(self._due())

    def _late(self, stop: threading.Event) -> Sequence[_Pending]:
        """After a pause, take results that have been due for too long."""
        stop.wait(TURN_S)
        with self._lock:
            return self._take(self._due(TURN_S))

    def _next_endings(self, stop: threading.Event) -> Sequence[_Pending]:
        """Take endings, waiting for them; empty: as `_next`."""
        with self._lock:
            self._wait_until_due(stop, endings=True)
            return self._take(self._due(endings=True))

    def _wait_until_due(self, stop: threading.Event, *, endings: bool) -> None:
        """Wait for an ending, or a result, that is due, for IDLE_S at most; the lock is held."""
        until_s = self._clock() + IDLE_S
        came = self._ending_came if endings else self._result_came
        while not self._due(endings=endings) and not stop.is_set() and (now_s := self._clock()) < until_s:
            due_s = [one.due_s for one in self._open(endings=endings)]
            came.wait(max(0.0, min([*due_s, until_s]) - now_s))

    def _due(self, age_s: float = 0.0, *, endings: bool = False) -> list[_Pending]:
        """Results, or endings, that no thread is writing and that have been due for so long; the lock is held."""
        until_s = self._clock() - age_s
        return [one for one in self._open(endings=endings) if one.due_s <= until_s]

    def _open(self, *, endings: bool) -> list[_Pending]:
        """Results, or endings, that no thread is writing; the lock is held."""
        return [one for one in self._pending.values() if not one.taken and (one.ending is not None) == endings]

    def _take(self, due: Sequence[_Pending]) -> Sequence[_Pending]:
        """Mark the first of these as being written by the caller; the lock is held."""
        batch = due[:MAX_RESULTS]
        for one in batch:
            one.taken = True
        return batch

    def _write_batch(self, store: QueueStore, batch: Sequence[_Pending]) -> None:
        """Write results together, as far as the database takes them, and every ending alone."""
        self._commit(store, [(one, one.result) for one in batch if one.result is not None and one.ending is None])
        for one in batch:
            if one.ending is not None:
                self._end(store, one, one.ending)

    def _commit(self, store: QueueStore, batch: Sequence[tuple[_Pending, JobResult]]) -> None:
        if not batch:
            return
        try:
            completions = store.complete_all([(one.job, result) for one, result in batch])
        except DatabaseUnavailableError as error:
            for one, _ in batch:
                self._spool_or_wait(one, error)
        except Exception as error:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            if len(batch) > 1:
                # One bad result must not keep the others from being written.
                for pair in batch:
                    self._commit(store, [pair])
                return
            # E.g. a value PostgreSQL does not take. The job must still end: with the cause, and retried.
            ((one, _),) = batch
            with job_context(one.job, slot=one.slot):
                _log.exception("job_end_not_stored")
            metrics.refused(one.job)
            one.ending = Failed(error=mask_password(f"unexpected {type(error).__name__}: {error}"))
        else:
            for (one, result), completion in zip(batch, completions, strict=True):
                self._apply_completion(one, result, completion)

    def _apply_completion(
        self, one: _Pending, result: JobResult, completion: Completion | StaleAttemptError | None
    ) -> None:
        """Do what the answer to one commit asks for."""
        self._log_database_back(one)
        if completion is None:
            self._retry_when_submission_is_free(one)
        elif isinstance(completion, StaleAttemptError):
            with job_context(one.job, slot=one.slot):
                _log.warning("result_too_late", error=str(completion))
            metrics.uncommitted(one.job)
            self._finish(one)
        else:
            metrics.committed(one.job, result.verdict)
            self._publisher.committed(one.job, result.verdict, submission_done=completion.submission_done)
            self._finish(one)

    def _end(self, store: QueueStore, one: _Pending, ending: Ending) -> None:
        """Write how an attempt ended without a result."""
        with job_context(one.job, slot=one.slot):
            try:
                ended = _write_ending(store, one, ending)
            except DatabaseUnavailableError as error:
                self._spool_or_wait(one, error)
                return
            except StaleAttemptError as error:
                _log.warning("job_not_ours", error=str(error))
            except Exception:  # noqa: BLE001 - logged with the job's ids
                # Nothing is left to try.
                _log.exception(LEFT_TO_ITS_LEASE)
            else:
                self._log_database_back(one)
                self._publisher.ended(one.job, ended)
        self._finish(one)

    def _log_database_back(self, one: _Pending) -> None:
        if one.waits_since_s is not None:
            with job_context(one.job, slot=one.slot):
                _log.info("database_back_job_end_stored")
            one.waits_since_s = None

    def _retry_when_submission_is_free(self, one: _Pending) -> None:
        """A transaction holds its submission: retry soon, without delaying other results."""
        now_s = self._clock()
        if one.held_since_s is None:
            one.held_since_s = now_s
        one.due_s = now_s + min(HELD_PAUSE_S * 2.0**one.held_times, HELD_PAUSE_MAX_S)
        one.held_times = min(one.held_times + 1, 30)
        if now_s - one.held_since_s >= HELD_S:
            with job_context(one.job, slot=one.slot):
                if self._spooled(one):
                    _log.warning("submission_locked_result_spooled")
                    self._finish(one)

    def _spool_or_wait(self, one: _Pending, error: DatabaseUnavailableError) -> None:
        """The database is away: spool a result, or wait in memory while there is patience."""
        with job_context(one.job, slot=one.slot):
            if one.ending is None and self._spooled(one):
                _log.warning("database_away_result_spooled", error=str(error))
                self._finish(one)
                return
            if one.waits_since_s is None:
                one.waits_since_s = self._clock()
                _log.warning("database_away_job_end_waits", error=str(error))
            if self._has_waited_enough(one, one.waits_since_s) or self._give_up.is_set():
                _log.error(LEFT_TO_ITS_LEASE, error=str(error))
                self._finish(one)

    def _has_waited_enough(self, one: _Pending, since_s: float) -> bool:
        now_s = self._clock()
        if one.result is not None or not self._leaving():
            one.leaving_since_s = None
        elif one.leaving_since_s is None:
            one.leaving_since_s = now_s
        leaving_s = 0.0 if one.leaving_since_s is None else now_s - one.leaving_since_s
        return now_s - since_s > self._patience_s or leaving_s > LEAVING_PATIENCE_S

    def _spooled(self, one: _Pending) -> bool:
        """Whether the outcome is a result, and safe on disk.

        A result that cannot be encoded is not; the database would refuse it too.
        """
        if one.result is None:
            return False
        try:
            return self._replayer.accept(one.job, one.result, slot=one.slot)
        except (TypeError, ValueError) as error:
            with job_context(one.job, slot=one.slot):
                _log.error("result_not_spooled", error=str(error))
            return False

    def _finish(self, one: _Pending) -> None:
        with self._lock:
            # In one step: a job whose lease is gone may be given to a slot again, and submitted. Has no effect when the
            # replayer holds the lease now.
            self._keeper.drop(one.lease)
            one.over = True
            del self._pending[one.job.key]
            self._size_bytes -= one.size_bytes
            empty = not self._pending
        # Only shutdown waits for this.
        if empty and self._leaving():
            self._wake.set()


def _write_ending(store: QueueStore, one: _Pending, ending: Ending) -> Ended:
    match ending:
        case Failed(error=error):
            return store.fail(one.job, error=error, report={"slot": one.slot}, slot=one.slot)
        case Cancelled():
            return store.cancelled(one.job)
        case Released(reason=reason):
            return store.release(one.job, reason=reason)
