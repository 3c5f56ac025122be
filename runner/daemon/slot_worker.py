"""A slot's thread: takes a claimed job, has it evaluated, and hands on the outcome.

Owns the rule which end of an evaluation becomes which write. The committer takes results, and the slot is free at once.
An attempt without a result is rare, and is written here; the store rejects it when the attempt is no longer ours.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from runner import metrics
from runner.config import mask_password
from runner.daemon.interfaces import JobEvaluator, StoreFactory
from runner.daemon.leases import Lease, LeaseKeeper, StopReason
from runner.daemon.outcomes import events
from runner.daemon.outcomes.committer import LEFT_TO_ITS_LEASE, ResultCommitter
from runner.daemon.outcomes.publisher import EventPublisher
from runner.errors import CancelledByRequest, DatabaseUnavailableError, InfrastructureError, StaleAttemptError
from runner.logs import get_logger, job_context
from runner.model import Job, JobResult, Slot
from runner.retry import Backoff
from runner.store import Ended, Store

_log = get_logger(__name__)

#: How long the end of an attempt waits for a database that is away. It waits in memory: a restart within that time
#: loses it, and the job is evaluated again.
PATIENCE_S: Final = 1800.0
#: The same once the daemon shall stop or be rebuilt.
LEAVING_PATIENCE_S: Final = 30.0
#: The slot closes its connection after so long without a job.
IDLE_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class _FailedAttempt:
    """How an attempt without a result ends."""

    #: The log event.
    what: str
    #: Writes it to the database; None: nothing is to be written.
    write: Callable[[Store], Ended] | None


class SlotWorker:
    """The thread of one slot. `give` and `busy` belong to the claiming thread; `run` is the body of the slot's own.

    `leaving` says whether the daemon is to end; `give_up`, once set, ends all waiting.
    """

    def __init__(
        self,
        slot: Slot,
        *,
        host: str,
        evaluator: JobEvaluator,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        committer: ResultCommitter,
        on_free: Callable[[], None],
        on_trouble: Callable[[], None],
        leaving: Callable[[], bool],
        give_up: threading.Event,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.slot = slot
        self._host = host
        self._evaluator = evaluator
        self._store_factory = store_factory
        self._keeper = keeper
        self._publisher = publisher
        self._committer = committer
        self._on_free = on_free
        self._on_trouble = on_trouble
        self._leaving = leaving
        self._give_up = give_up
        self._patience_s = patience_s
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._busy = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether it has a job whose outcome is neither handed on nor written."""
        return self._busy.is_set()

    def give(self, lease: Lease) -> None:
        """Take a claimed job; only for a worker that is not busy."""
        self._busy.set()
        self._inbox.put(lease)

    def nudge(self) -> None:
        """Make the thread check its stop event."""
        self._inbox.put(None)

    def run(self, stop: threading.Event) -> None:
        """Work on jobs until `stop` is set."""
        store = self._store_factory(f"slot {self.slot.name}")
        try:
            while not stop.is_set():
                try:
                    lease = self._inbox.get(timeout=IDLE_S)
                except queue.Empty:
                    store.close()
                    continue
                if lease is None:
                    continue
                try:
                    with job_context(lease.job, slot=self.slot.name):
                        self._work(lease, store)
                finally:
                    # Has no effect when the committer holds the lease now.
                    self._keeper.drop(lease)
                    self._busy.clear()
                    self._on_free()
        finally:
            store.close()

    def _work(self, lease: Lease, store: Store) -> None:
        job = lease.job
        _log.info("job claimed", user=job.user_id, failures=job.failures)
        self._publisher.publish(events.claimed(job, host=self._host))
        metrics.claimed(job)
        started_s = time.monotonic()
        handed = False

        def hand(result: JobResult) -> None:
            nonlocal handed
            handed = True
            self._publisher.forget_progress(job)
            _log.info("job evaluated", verdict=result.verdict.value, run_s=round(time.monotonic() - started_s, 3))
            metrics.evaluated(job, result)
            self._committer.submit(job, result, slot=self.slot.name)

        found = self._evaluate(lease, hand)
        if handed:
            # The job belongs to the committer, whatever happened after the hand-over.
            return
        if isinstance(found, JobResult):
            hand(found)
            return
        self._publisher.forget_progress(job)
        what = found.what
        _log.info(what, run_s=round(time.monotonic() - started_s, 3))
        metrics.ended(job, "failed" if lease.reason is None else lease.reason.value)
        if found.write is not None:
            self._write(job, store, found.write)

    def _evaluate(self, lease: Lease, on_result: Callable[[JobResult], None]) -> JobResult | _FailedAttempt:
        job = lease.job
        try:
            return self._evaluator.run(
                job,
                self.slot,
                cancel=lease.cancel,
                on_progress=lambda progress: self._publisher.post_progress(job, replace(progress, slot=self.slot.name)),
                on_result=on_result,
            )
        except CancelledByRequest:
            return self._stopped(lease) or self._failed(job, "the evaluation stopped although nothing had asked it to")
        except InfrastructureError as error:
            stopped = self._stopped(lease)
            if stopped is None:
                metrics.fault(error)
                self._on_trouble()
                _log.warning("evaluation failed through no fault of the submission", error=str(error))
            return stopped or self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - logged with the job's ids
            # The daemon survives every bug in an evaluation; the job keeps the cause.
            metrics.fault(error)
            _log.exception("evaluation broke")
            return self._failed(job, f"unexpected {type(error).__name__}: {error}")

    def _failed(self, job: Job, error: str) -> _FailedAttempt:
        error, slot = mask_password(error), self.slot.name
        return _FailedAttempt(
            what="job failed, our fault",
            write=lambda store: store.fail(job, error=error, report={"slot": slot}, slot=slot),
        )

    def _stopped(self, lease: Lease) -> _FailedAttempt | None:
        """How a stopped job ends; None if it was not asked to stop."""
        job = lease.job
        match lease.reason:
            case None:
                return None
            case StopReason.LOST:
                return _FailedAttempt(what="run stopped: the job is no longer ours", write=None)
            case StopReason.CANCELLED:
                return _FailedAttempt(what="run stopped: cancelled", write=lambda store: store.cancelled(job))
            case StopReason.SHUTDOWN:
                return _FailedAttempt(
                    what="run stopped: the daemon is going down",
                    write=lambda store: store.release(job, reason="the daemon was told to stop at once"),
                )
            case StopReason.GIVEN_BACK:
                return _FailedAttempt(
                    what="job given back before it began",
                    write=lambda store: store.release(job, reason="its host begins no more jobs; it had not begun"),
                )
            case StopReason.OVERTIME:
                return self._failed(job, "the run took longer than the host's max_run_s and was stopped")

    def _write(self, job: Job, store: Store, write: Callable[[Store], Ended]) -> None:
        """Write and announce how a job ended; retry for `patience_s` while the database is away."""
        # The run is over, so a stop request has no effect; the lease is only renewed.
        over = self._keeper.hold(job, running=False)
        until_s = time.monotonic() + self._patience_s
        leaving = False
        backoff = Backoff(cap_s=5.0)
        try:
            while True:
                try:
                    ended = write(store)
                except StaleAttemptError as error:
                    _log.warning("job is no longer ours", error=str(error))
                    return
                except DatabaseUnavailableError as error:
                    if backoff.failures == 0:
                        _log.warning("database away: the job's end waits in memory", error=str(error))
                    if self._leaving() and not leaving:
                        leaving = True
                        until_s = min(until_s, time.monotonic() + LEAVING_PATIENCE_S)
                    if time.monotonic() > until_s or backoff.wait(self._give_up):
                        _log.error(LEFT_TO_ITS_LEASE, error=str(error))
                        return
                else:
                    if backoff.failures:
                        _log.info("database back: the job is settled", attempts=backoff.failures + 1)
                    self._publisher.ended(job, ended)
                    return
        except Exception:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            _log.exception(LEFT_TO_ITS_LEASE)
        finally:
            self._keeper.drop(over)
