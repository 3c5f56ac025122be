"""Ends waiting jobs whose file cannot be evaluated while all slots of their GPU type here are busy.

Decides when to check, and stores and logs the result; the evaluator decides what to refuse. No job depends on a check:
if it fails or comes too late, the job waits for its slot.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Sequence

from runner.base import metrics
from runner.base.config import Config
from runner.base.errors import CancelledByRequest, InfrastructureError
from runner.base.gpu_types import Registry
from runner.base.logs import get_logger, job_context
from runner.base.model import JobResult, Slot, SubmissionJob
from runner.daemon.interfaces import JobEvaluator
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.slot import LOOK_S
from runner.store import QueueStore

_log = get_logger(__name__)


class EarlyChecks:
    """One check at a time. `turn` belongs to the claiming thread; `run` is the body of its own thread."""

    def __init__(
        self,
        evaluator: JobEvaluator,
        publisher: EventPublisher,
        *,
        config: Config,
        instance: str,
        slots: Sequence[Slot],
        registry: Registry,
        busy_types: Callable[[], Collection[str]],
        wake: threading.Event,
    ) -> None:
        """`busy_types`: every name of the GPU types of which no slot could start a job now. `wake`: asks for a turn."""
        self._evaluator = evaluator
        self._publisher = publisher
        self._config = config
        self._instance = instance
        self._slots = {slot.gpu_type: slot for slot in slots}
        self._registry = registry
        self._busy_types = busy_types
        self._wake = wake
        self._busy = False
        self._inbox: queue.SimpleQueue[SubmissionJob | None] = queue.SimpleQueue()
        self._refused: queue.SimpleQueue[tuple[SubmissionJob, JobResult]] = queue.SimpleQueue()

    def turn(self, store: QueueStore) -> None:
        """End the job that was refused, and look for the next one to check."""
        if self._busy:
            return
        try:
            if not self._refused.empty():
                self._end(store, *self._refused.get())
            if not self._evaluator.can_refuse or not (gpu_types := self._busy_types()):
                return
            job = store.take_check(host=self._config.host_name, gpu_types=gpu_types, instance=self._instance)
        except InfrastructureError as error:
            # If the database is away, the next claim says so.
            _log.warning("early_check_failed", error=str(error))
            return
        if job is not None:
            self._busy = True
            self._inbox.put(job)

    def _end(self, store: QueueStore, job: SubmissionJob, result: JobResult) -> None:
        with job_context(job):
            completion = store.complete_waiting(job, result, host=self._config.host_name, instance=self._instance)
            if completion is None:
                _log.info("early_check_too_late")
                return
            _log.info("job_refused_early", verdict=result.verdict.value)
        metrics.evaluated(job, result)
        metrics.committed(job, result.verdict)
        self._publisher.committed(job, result.verdict, submission_done=completion.submission_done)

    def nudge(self) -> None:
        """Make the thread check its stop event."""
        self._inbox.put(None)

    def run(self, stop: threading.Event) -> None:
        """Check jobs until `stop` is set."""
        while not stop.is_set():
            try:
                job = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if job is None:
                continue
            try:
                with job_context(job):
                    self._check(job, stop)
            finally:
                self._busy = False
                self._wake.set()

    def _check(self, job: SubmissionJob, stop: threading.Event) -> None:
        slot = self._slots[self._registry.get(job.gpu_type).name]
        try:
            result = self._evaluator.refuse(job, slot, cancel=stop)
        except CancelledByRequest:
            return
        except InfrastructureError as error:
            _log.warning("early_check_failed", error=str(error))
        else:
            if result is not None:
                self._refused.put((job, result))
