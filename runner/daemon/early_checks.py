"""Ends waiting jobs whose file cannot be evaluated while all slots of their GPU type here are busy.

Owns when that is tried and what is told of it; the evaluator decides what is refused. No job depends on it: a job whose
check fails or comes too late waits for its slot as if there had been none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from runner.base import metrics
from runner.base.config import Config
from runner.base.errors import CancelledByRequest, InfrastructureError
from runner.base.gpu_types import Registry
from runner.base.logs import get_logger, job_context
from runner.base.model import Slot, SubmissionJob
from runner.daemon.interfaces import EarlyChecker, StoreFactory
from runner.daemon.outcomes.publisher import EventPublisher
from runner.store import QueueStore

_log = get_logger(__name__)


class EarlyChecks:
    """`run` is the body of its thread."""

    def __init__(
        self,
        store_factory: StoreFactory,
        checker: EarlyChecker,
        publisher: EventPublisher,
        *,
        config: Config,
        instance: str,
        slots: Sequence[Slot],
        registry: Registry,
        busy_types: Callable[[], Collection[str]],
    ) -> None:
        """`busy_types`: every name of the GPU types of which no slot could start a job now."""
        self._store_factory = store_factory
        self._checker = checker
        self._publisher = publisher
        self._config = config
        self._instance = instance
        self._slots = {slot.gpu_type: slot for slot in slots}
        self._registry = registry
        self._busy_types = busy_types

    def run(self, stop: threading.Event) -> None:
        """Check jobs whenever some wait, until `stop` is set."""
        store = self._store_factory("check")
        try:
            while not stop.wait(self._config.poll_s):
                try:
                    while not stop.is_set() and (job := self._next(store)) is not None:
                        with job_context(job):
                            self._check(store, job, stop)
                except CancelledByRequest:
                    continue
                except InfrastructureError as error:
                    _log.warning("early_check_failed", error=str(error))
        finally:
            store.close()

    def _next(self, store: QueueStore) -> SubmissionJob | None:
        gpu_types = self._busy_types() if self._checker.can_refuse else ()
        if not gpu_types:
            store.close()
            return None
        return store.take_check(host=self._config.host_name, gpu_types=gpu_types, instance=self._instance)

    def _check(self, store: QueueStore, job: SubmissionJob, stop: threading.Event) -> None:
        slot = self._slots[self._registry.get(job.gpu_type).name]
        result = self._checker.refuse(job, slot, cancel=stop)
        if result is None:
            return
        completion = store.complete_waiting(job, result, host=self._config.host_name, instance=self._instance)
        if completion is None:
            _log.info("early_check_too_late")
            return
        _log.info("job_refused_early", verdict=result.verdict.value)
        metrics.evaluated(job, result)
        metrics.committed(job, result.verdict)
        self._publisher.committed(job, result.verdict, submission_done=completion.submission_done)
