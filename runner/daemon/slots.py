"""One slot at work: takes a claimed job, has it evaluated, and settles it in the database.

Owns the thread of a slot and the rule which ending of an evaluation becomes which write. Every write is fenced by the
attempt in the store. A result that cannot be committed because the database is away goes to the spool, and the slot is
free again; only what the spool does not take, and endings without a result, wait here. Called by the loop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runner.backoff import Backoff
from runner.config import mask_password
from runner.daemon import events
from runner.daemon.announcer import Announcer
from runner.daemon.committer import Committer
from runner.daemon.delivery import Delivery
from runner.daemon.ports import Evaluates, StoreFactory
from runner.errors import CancelledByRequest, DatabaseUnavailableError, InfrastructureError, StaleAttemptError
from runner.lease import Lease, LeaseKeeper, StopReason
from runner.logs import get_logger, job_context
from runner.model import Job, JobResult, JobState, Json, Slot
from runner.store import Ended, Store

_log = get_logger(__name__)

#: How long what the spool does not take waits for a database that is away. It waits in memory: a restart of the daemon
#: within that time loses it, and the job is evaluated again.
COMMIT_PATIENCE_S: Final = 1800.0
#: The connection of a slot is closed after so long without a job.
IDLE_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class _Settlement:
    """How a job ends: what the log calls it, and the write that says so and returns the event to announce."""

    what: str
    #: None: nothing to write.
    write: Callable[[Store], Json] | None
    #: What was found; None: the attempt has no result.
    result: JobResult | None = None


class SlotWorker:
    """The thread of one slot. `give` and `busy` belong to the loop's thread; `run` is the body of its own."""

    def __init__(
        self,
        slot: Slot,
        *,
        host: str,
        evaluator: Evaluates,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        announcer: Announcer,
        delivery: Delivery,
        committer: Committer,
        on_free: Callable[[], None],
        on_trouble: Callable[[], None],
        give_up: threading.Event,
        commit_patience_s: float = COMMIT_PATIENCE_S,
    ) -> None:
        self.slot = slot
        self._host = host
        self._evaluator = evaluator
        self._store_factory = store_factory
        self._keeper = keeper
        self._announcer = announcer
        self._delivery = delivery
        self._committer = committer
        self._on_free = on_free
        self._on_trouble = on_trouble
        self._give_up = give_up
        self._commit_patience_s = commit_patience_s
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._busy = threading.Event()
        #: The result that is being committed.
        self._unsettled: tuple[Job, JobResult] | None = None

    @property
    def busy(self) -> bool:
        """Whether a job was given that is neither settled nor safe in the spool."""
        return self._busy.is_set()

    def give(self, lease: Lease) -> None:
        """Hand over a claimed job; only to a worker that is not busy."""
        self._busy.set()
        self._inbox.put(lease)

    def nudge(self) -> None:
        """Have the thread look at its stop event."""
        self._inbox.put(None)

    def rescue(self) -> bool:
        """Spool the result whose commit does not come back, from another thread; whether it is safe now.

        If the commit went through after all, the delivery finds that out.
        """
        unsettled = self._unsettled
        return unsettled is not None and self._delivery.accept(*unsettled, slot=self.slot.name)

    def run(self, stop: threading.Event) -> None:
        """Work off jobs until `stop` is set. The connection stays open while work keeps coming."""
        store = self._store_factory(f"slot {self.slot.name}")
        try:
            while not stop.is_set():
                try:
                    lease = self._inbox.get(timeout=IDLE_S)
                except queue.Empty:
                    store.close()
                    self._committer.rest()
                    continue
                if lease is None:
                    continue
                try:
                    with job_context(lease.job, slot=self.slot.name):
                        self._work(lease, store)
                finally:
                    self._unsettled = None
                    self._keeper.drop(lease)
                    self._busy.clear()
                    self._on_free()
        finally:
            store.close()

    def _work(self, lease: Lease, store: Store) -> None:
        job = lease.job
        _log.info("job claimed", user=job.user_id, failures=job.failures)
        self._announcer.event(events.claimed(job, host=self._host))
        started_s = time.monotonic()
        settlement = self._evaluate(lease)
        self._announcer.forget(job)
        _log.info(settlement.what, run_s=round(time.monotonic() - started_s, 3))
        if settlement.write is None:
            return
        self._unsettled = None if settlement.result is None else (job, settlement.result)
        # From here on nothing can be stopped: the lease is only renewed, however long the database is away.
        over = self._keeper.hold(job, running=False)
        try:
            self._settle(job, store, settlement)
        except InfrastructureError as error:
            _log.error("job could not be settled; it is evaluated again when its lease expires", error=str(error))
        except Exception as error:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            # The result itself could not be written, e.g. because of a value PostgreSQL does not take. The job must
            # still end: with the cause, and retried.
            _log.exception("job could not be settled")
            self._unsettled = None
            self._fail_after(store, job, error)
        finally:
            # Nothing, if the delivery holds it now.
            self._keeper.drop(over)

    def _evaluate(self, lease: Lease) -> _Settlement:
        job = lease.job
        try:
            result = self._evaluator.run(
                job, self.slot, cancel=lease.cancel, on_progress=lambda progress: self._announcer.post(job, progress)
            )
        except CancelledByRequest:
            return self._stopped(lease) or self._failed(job, "the evaluation stopped although nothing had asked it to")
        except InfrastructureError as error:
            stopped = self._stopped(lease)
            if stopped is None:
                self._on_trouble()
                _log.warning("evaluation failed through no fault of the submission", error=str(error))
            return stopped or self._failed(job, str(error))
        except Exception as error:  # noqa: BLE001 - logged with the job's ids
            # The daemon outlives every bug in an evaluation; the job keeps the cause.
            _log.exception("evaluation broke")
            return self._failed(job, f"unexpected {type(error).__name__}: {error}")

        def complete(store: Store) -> Json:
            completion = self._committer.complete(job, result, alone=store)
            return events.done(job, result.verdict, submission_done=completion.submission_done)

        return _Settlement(what=f"job evaluated: {result.verdict}", write=complete, result=result)

    def _failed(self, job: Job, error: str) -> _Settlement:
        error, slot = mask_password(error), self.slot.name
        return self._ended(
            job, "job failed, our fault", lambda store: store.fail(job, error=error, report={"slot": slot}, slot=slot)
        )

    def _ended(self, job: Job, what: str, write: Callable[[Store], Ended]) -> _Settlement:
        return _Settlement(what=what, write=lambda store: events.ended(job, write(store)))

    def _stopped(self, lease: Lease) -> _Settlement | None:
        """How a job that was told to stop is settled; None if it was not told."""
        job = lease.job
        match lease.reason:
            case None:
                return None
            case StopReason.LOST:
                return _Settlement(what="run stopped: the job is no longer ours", write=None)
            case StopReason.CANCELLED:
                return self._ended(job, "run stopped: cancelled", lambda store: store.cancelled(job))
            case StopReason.SHUTDOWN:
                return self._ended(
                    job,
                    "run stopped: the daemon is going down",
                    lambda store: store.release(job, reason="the daemon was told to stop at once"),
                )
            case StopReason.OVERTIME:
                return self._failed(job, "the run took longer than the host's max_run_s and was stopped")

    def _settle(self, job: Job, store: Store, settlement: _Settlement) -> None:
        """Write how a job ended and announce it. While the database is away a result goes to the spool.

        What the spool does not take is tried again while patience lasts.

        Raises:
            DatabaseUnavailableError: patience ran out, or the daemon was told to go down at once.
        """
        if settlement.write is None:
            return
        give_up_s = time.monotonic() + self._commit_patience_s
        backoff = Backoff(cap_s=5.0)
        while True:
            try:
                event = settlement.write(store)
            except StaleAttemptError as error:
                _log.warning("job is no longer ours: what was found is no verdict", error=str(error))
                return
            except DatabaseUnavailableError as error:
                if self._spooled(job, settlement):
                    _log.warning("database away: the result waits in the spool", error=str(error))
                    return
                if backoff.failures == 0:
                    _log.warning("database away: the job's end waits in memory", error=str(error))
                if time.monotonic() > give_up_s or backoff.wait(self._give_up):
                    raise
            else:
                if backoff.failures:
                    _log.info("database back: the job is settled", attempts=backoff.failures + 1)
                self._announce(job, event)
                return

    def _spooled(self, job: Job, settlement: _Settlement) -> bool:
        return settlement.result is not None and self._delivery.accept(job, settlement.result, slot=self.slot.name)

    def _announce(self, job: Job, event: Json) -> None:
        self._announcer.event(event)
        if event["event"] == JobState.QUEUED:
            self._announcer.wake(job.gpu_type)

    def _fail_after(self, store: Store, job: Job, cause: Exception) -> None:
        try:
            self._settle(job, store, self._failed(job, f"unexpected {type(cause).__name__}: {cause}"))
        except Exception:  # noqa: BLE001 - logged with the job's ids
            # Nothing is left to try; the lease expires and the job is reclaimed.
            _log.exception("job could not be failed either; it is evaluated again when its lease expires")
