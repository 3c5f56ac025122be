"""What the daemon is given, as protocols: tests hand in scripted ones, `serve` the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from runner.model import Job, JobResult, Progress, Slot
from runner.store import Store

#: Makes a Store for one thread; the argument says what the connection is for.
StoreFactory = Callable[[str], Store]


class JobEvaluator(Protocol):
    """Turns a job into a result (`runner.evaluation.evaluate.Evaluator`). Threadsafe."""

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Make sure jobs can run on these slots.

        Raises:
            InfrastructureError: they cannot, for now.
        """
        ...

    def can_build(self, job: Job) -> bool:
        """Whether a job would be built before it has its slot, and could be now: then it may be given beside a run."""
        ...

    def run(
        self,
        job: Job,
        slot: Slot,
        *,
        cancel: threading.Event,
        on_progress: Callable[[Progress], None],
        on_result: Callable[[JobResult], None],
    ) -> JobResult:
        """Evaluate one job; of a slot's jobs one after the other, whatever is given beside a run.

        A result that stands before the slot is free again may be given to `on_result`, once; then it is returned, too.

        Raises:
            InfrastructureError: our fault; the job is retried.
            CancelledByRequest: `cancel` was set.
        """
        ...


class Engine(Protocol):
    """The container engine as far as the daemon sees it."""

    def check(self) -> object:
        """Find out whether it answers.

        Raises:
            InfrastructureError: it does not; says what to do.
        """
        ...

    def reap(self) -> int:
        """Remove containers an earlier process of this host left behind; how many there were.

        Raises:
            InfrastructureError: the engine does not answer.
        """
        ...
