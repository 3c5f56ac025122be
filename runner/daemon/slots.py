"""One slot at work: takes a claimed job, has it evaluated, and settles it in the database.

Owns the thread of a slot and the rule which ending of an evaluation becomes which write. Every write is fenced by the
attempt in the store; what the database refuses as stale is dropped here. Called by the loop.
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
from runner.daemon.ports import Evaluates, StoreFactory
from runner.daemon.progress import ProgressReporter
from runner.errors import CancelledByRequest, DatabaseUnavailableError, InfrastructureError, StaleAttemptError
from runner.lease import Lease, LeaseKeeper, StopReason
from runner.logs import get_logger, job_context
from runner.model import Job, Slot
from runner.store import Store

_log = get_logger(__name__)

#: How long a finished run is kept for a database that is away. It is kept in memory: a restart of the daemon within
#: that time loses it, and the job is evaluated again when its lease has expired.
COMMIT_PATIENCE_S: Final = 1800.0


@dataclass(frozen=True, kw_only=True)
class _Settlement:
    """How a job ends: what the log calls it, and the write that says so (None: nothing to write)."""

    what: str
    write: Callable[[Store], object] | None


class SlotWorker:
    """The thread of one slot. `give` and `busy` belong to the loop's thread; `run` is the body of its own."""

    def __init__(
        self,
        slot: Slot,
        *,
        evaluator: Evaluates,
        store_factory: StoreFactory,
        keeper: LeaseKeeper,
        reporter: ProgressReporter,
        on_free: Callable[[], None],
        on_trouble: Callable[[], None],
        give_up: threading.Event,
        commit_patience_s: float = COMMIT_PATIENCE_S,
    ) -> None:
        self.slot = slot
        self._evaluator = evaluator
        self._store_factory = store_factory
        self._keeper = keeper
        self._reporter = reporter
        self._on_free = on_free
        self._on_trouble = on_trouble
        self._give_up = give_up
        self._commit_patience_s = commit_patience_s
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._busy = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether a job was given that has not been settled."""
        return self._busy.is_set()

    def give(self, lease: Lease) -> None:
        """Hand over a claimed job; only to a worker that is not busy."""
        self._busy.set()
        self._inbox.put(lease)

    def nudge(self) -> None:
        """Have the thread look at its stop event."""
        self._inbox.put(None)

    def run(self, stop: threading.Event) -> None:
        """Work off jobs until `stop` is set."""
        while not stop.is_set():
            try:
                lease = self._inbox.get(timeout=5.0)
            except queue.Empty:
                continue
            if lease is None:
                continue
            try:
                with job_context(lease.job, slot=self.slot.name):
                    self._work(lease)
            finally:
                self._keeper.drop(lease)
                self._busy.clear()
                self._on_free()

    def _work(self, lease: Lease) -> None:
        job = lease.job
        _log.info("job claimed", user=job.user_id, failures=job.failures)
        started_s = time.monotonic()
        settlement = self._evaluate(lease)
        self._reporter.forget(job)
        _log.info(settlement.what, run_s=round(time.monotonic() - started_s, 3))
        if settlement.write is None:
            return
        store = self._store_factory(f"slot {self.slot.name}")
        try:
            self._commit(store, settlement.write)
        except InfrastructureError as error:
            _log.error("job could not be settled; it is evaluated again when its lease expires", error=str(error))
        except Exception as error:  # noqa: BLE001 - the daemon outlives it; logged with the job's ids
            # The result itself could not be written, e.g. because of a value PostgreSQL does not take. The job must
            # still end: with the cause, and retried.
            _log.exception("job could not be settled")
            self._fail_after(store, job, error)
        finally:
            store.close()

    def _evaluate(self, lease: Lease) -> _Settlement:
        job = lease.job
        try:
            result = self._evaluator.run(
                job, self.slot, cancel=lease.cancel, on_progress=lambda progress: self._reporter.post(job, progress)
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
        return _Settlement(what=f"job evaluated: {result.verdict}", write=lambda store: store.complete(job, result))

    def _failed(self, job: Job, error: str) -> _Settlement:
        error = mask_password(error)
        return _Settlement(
            what="job failed, our fault",
            write=lambda store: store.fail(job, error=error, report={"slot": self.slot.name}, slot=self.slot.name),
        )

    def _stopped(self, lease: Lease) -> _Settlement | None:
        """How a job that was told to stop is settled; None if it was not told."""
        job = lease.job
        match lease.reason:
            case None:
                return None
            case StopReason.LOST:
                return _Settlement(what="run stopped: the job is no longer ours", write=None)
            case StopReason.CANCELLED:
                return _Settlement(what="run stopped: cancelled", write=lambda store: store.cancelled(job))
            case StopReason.SHUTDOWN:
                return _Settlement(
                    what="run stopped: the daemon is going down",
                    write=lambda store: store.release(job, reason="the daemon was told to stop at once"),
                )
            case StopReason.OVERTIME:
                return self._failed(job, "the run took longer than the host's max_run_s and was stopped")

    def _commit(self, store: Store, write: Callable[[Store], object]) -> None:
        """Write, and try again while the database is away and patience lasts.

        Raises:
            DatabaseUnavailableError: patience ran out, or the daemon was told to go down at once.
        """
        give_up_s = time.monotonic() + self._commit_patience_s
        backoff = Backoff(cap_s=5.0)
        while True:
            try:
                write(store)
            except StaleAttemptError as error:
                _log.warning("job is no longer ours: what was found is dropped", error=str(error))
                return
            except DatabaseUnavailableError as error:
                if backoff.failures == 0:
                    _log.warning("database away: the result waits in memory", error=str(error))
                if time.monotonic() > give_up_s or backoff.wait(self._give_up):
                    raise
            else:
                if backoff.failures:
                    _log.info("database back: the result is committed", attempts=backoff.failures + 1)
                return

    def _fail_after(self, store: Store, job: Job, cause: Exception) -> None:
        try:
            self._commit(
                store, self._failed(job, f"unexpected {type(cause).__name__}: {cause}").write or (lambda _store: None)
            )
        except Exception:  # noqa: BLE001 - logged with the job's ids
            # Nothing is left to try; the lease expires and the job is reclaimed.
            _log.exception("job could not be failed either; it is evaluated again when its lease expires")
