"""The protocols of what a daemon is given: tests pass scripted ones, `serve` the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from runner.base.model import Job, JobResult, Progress, Slot, SubmissionJob
from runner.store import QueueStore

#: Makes a QueueStore for one thread; the argument names the purpose of the connection.
StoreFactory = Callable[[str], QueueStore]


class JobEvaluator(Protocol):
    """Turns a job into a result (`runner.evaluation.evaluate.Evaluator`). Threadsafe."""

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Make sure jobs can run on these slots.

        Raises:
            InfrastructureError: they cannot, for now.
        """

    def check(self) -> None:
        """Look for what `prepare` made, and make anew what has gone.

        Raises:
            InfrastructureError: that fails, for now.
        """

    def evaluate(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> AbstractContextManager[JobResult]:
        """Evaluate one job.

        The block gets the result as soon as it is final. The slot is free when the block has been left.

        Raises:
            InfrastructureError: our fault; the job is retried.
            CancelledByRequest: `cancel` was set.
        """

    def try_out(self, slot: Slot, *, cancel: threading.Event) -> None:
        """Keep a slot on which a run has failed through our fault out of use until one succeeds there."""

    @property
    def can_refuse(self) -> bool:
        """Whether `refuse` may be asked, without a disturbance of any slot."""
        ...

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """The result of a waiting job that need not run; None: it has to. `slot`: one of its GPU type, perhaps busy.

        Raises:
            InfrastructureError: our fault; the job has to run.
            CancelledByRequest: `cancel` was set.
        """
        ...


class Engine(Protocol):
    """The container engine as the daemon sees it."""

    def check(self) -> object:
        """Check whether it answers.

        Raises:
            InfrastructureError: it does not; says what to do.
        """

    def reap(self) -> int:
        """Remove containers that an earlier process of this host left behind; how many there were.

        Raises:
            InfrastructureError: the engine does not answer.
        """
