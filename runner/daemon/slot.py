"""A slot: its jobs, and the thread that takes a claimed job, has it evaluated, and submits the outcome.

Owns the rule which end of an evaluation becomes which outcome. Must not write: the writer takes the outcome, and the
slot is free at once. After an accepted public run it waits for a moment until that is written: the secret run may then
be claimed before any other job, and gets what is kept for it here.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Final

from runner.base import metrics
from runner.base.database_address import mask_password
from runner.base.errors import CancelledByRequest, InfrastructureError
from runner.base.logs import get_logger, job_context
from runner.base.model import Slot, Verdict
from runner.base.receipts import Signer
from runner.daemon.interfaces import JobEvaluator
from runner.daemon.leases import Lease, LeaseKeeper, StopReason
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.writer import Cancelled, Failed, Outcome, OutcomeWriter, Released
from runner.daemon.receipts import with_receipt
from runner.evaluation import secret

_log = get_logger(__name__)

#: How often a slot without a job checks its stop event; a nudge is faster.
LOOK_S: Final = 5.0
#: The longest wait for the commit of a public run.
COMMIT_WAIT_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class SlotSignals:
    """Events from the slots to the claiming thread, which waits on them."""

    #: Look at the queue.
    wake: threading.Event = field(default_factory=threading.Event)
    #: A run failed through our fault: check the engine before the next claim.
    check_engine: threading.Event = field(default_factory=threading.Event)


class SlotWorker:
    """The thread of one slot. `give` and `busy` belong to the claiming thread; `run` is the body of the slot's own."""

    def __init__(
        self,
        slot: Slot,
        *,
        host: str,
        evaluator: JobEvaluator,
        keeper: LeaseKeeper,
        publisher: EventPublisher,
        writer: OutcomeWriter,
        signer: Signer,
        signals: SlotSignals,
    ) -> None:
        self.slot = slot
        self._host = host
        self._evaluator = evaluator
        self._keeper = keeper
        self._publisher = publisher
        self._writer = writer
        self._signer = signer
        self._signals = signals
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        #: It has a job whose outcome is not submitted, or whose container is not gone.
        self.busy = False

    def give(self, lease: Lease) -> None:
        """Take a claimed job; only for a worker that is not busy."""
        self.busy = True
        self._inbox.put(lease)

    def nudge(self) -> None:
        """Make the thread check its stop event."""
        self._inbox.put(None)

    def run(self, stop: threading.Event) -> None:
        """Work on jobs until `stop` is set."""
        while not stop.is_set():
            try:
                lease = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if lease is None:
                continue
            try:
                with job_context(lease.job, slot=self.slot.name):
                    self._work(lease)
            finally:
                # Has no effect when the writer holds the lease now.
                self._keeper.drop(lease)
                self.busy = False
                self._signals.wake.set()

    def _work(self, lease: Lease) -> None:
        job = lease.job
        _log.info("job_claimed", user=job.user_id, failures=job.failures)
        self._publisher.claimed(job, host=self._host)
        metrics.claimed(job)
        started_s = time.monotonic()
        submitted = False
        try:
            with self._evaluator.evaluate(
                job,
                self.slot,
                cancel=lease.cancel,
                on_progress=lambda progress: self._publisher.post_progress(job, replace(progress, slot=self.slot.name)),
            ) as result:
                signed = with_receipt(job, result, host=self._host, signer=self._signer)
                self._publisher.forget_progress(job)
                _log.info("job_evaluated", verdict=result.verdict.value, run_s=round(time.monotonic() - started_s, 3))
                metrics.evaluated(job, result)
                self._writer.submit(job, signed, slot=self.slot.name)
                submitted = True
        except Exception as error:  # noqa: BLE001 - the daemon survives every bug in an evaluation
            what, outcome = self._explain(error, lease)
            if submitted:
                # The result stands, whatever broke while its container was removed.
                return
        else:
            # Nothing is kept on a device, or of a run that was not accepted.
            if result.verdict is Verdict.ACCEPTED and secret.precedes(job) and not self.slot.devices:
                self._writer.wait_until_over(job, COMMIT_WAIT_S)
            return
        self._publisher.forget_progress(job)
        _log.info(what, run_s=round(time.monotonic() - started_s, 3))
        metrics.ended(job, "failed" if lease.reason is None else lease.reason.value)
        if outcome is not None:
            self._writer.submit(job, outcome, slot=self.slot.name)
        if lease.reason is None:
            self._evaluator.try_out(self.slot, cancel=lease.cancel)

    def _explain(self, error: Exception, lease: Lease) -> tuple[str, Outcome | None]:
        """The log event and the outcome of an evaluation that raised; called while the error is handled."""
        if isinstance(error, CancelledByRequest):
            return _stopped(lease) or _failed("the evaluation stopped although nothing had asked it to")
        if isinstance(error, InfrastructureError):
            stopped = _stopped(lease)
            if stopped is None:
                metrics.fault(error)
                self._signals.check_engine.set()
                _log.warning("evaluation_failed", error=str(error))
            return stopped or _failed(str(error))
        metrics.fault(error)
        _log.exception("evaluation_crashed")
        return _failed(f"unexpected {type(error).__name__}: {error}")


def _failed(error: str) -> tuple[str, Outcome]:
    return "job_failed", Failed(error=mask_password(error))


def _stopped(lease: Lease) -> tuple[str, Outcome | None] | None:
    """How a stopped job ends; None if it was not asked to stop."""
    match lease.reason:
        case None:
            return None
        case StopReason.LOST:
            return "run_stopped_lease_lost", None
        case StopReason.CANCELLED:
            return "run_cancelled", Cancelled()
        case StopReason.SHUTDOWN:
            return "run_stopped_by_shutdown", Released(reason="the daemon was told to stop at once")
        case StopReason.OVERTIME:
            return _failed("the run took longer than the host's max_run_s and was stopped")
