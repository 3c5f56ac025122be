"""A slot at work: what ends after its result is known, and what our own failures say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from runner.base.errors import CancelledByRequest, EvaluationError
from runner.base.model import Job, JobResult, Progress, Slot
from runner.daemon.leases import Lease, StopReason
from runner.daemon.outcomes.writer import OutcomeWriter
from runner.daemon.slot import SlotSignals, SlotWorker
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit.daemon.fakes import Parts
from tests.unit.daemon.outcomes.spool.samples import job, result

Script = Callable[[Lease], JobResult]


class Working:
    """One slot's worker in a thread, on fakes."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.script: Script = lambda _lease: result()
        self.lease: Lease | None = None
        self.signals = SlotSignals()
        self.give_up = threading.Event()
        self.stop = threading.Event()
        #: What goes on after the result is known.
        self.clear: Callable[[], None] = lambda: None
        self.writer = OutcomeWriter(
            parts.fake,
            parts.keeper,
            parts.publisher,
            parts.replayer,
            slots=1,
            wake=self.signals.wake,
            leaving=lambda: False,
            give_up=self.give_up,
        )
        self.worker = SlotWorker(
            Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0,)),
            host="h",
            evaluator=self,
            keeper=parts.keeper,
            publisher=parts.publisher,
            writer=self.writer,
            signals=self.signals,
        )
        self.threads = [
            threading.Thread(target=body, args=(self.stop,), daemon=True)
            for body in (self.worker.run, self.writer.run, self.writer.run_endings)
        ]
        for thread in self.threads:
            thread.start()

    def prepare(self, _slots: object) -> None:
        """Nothing to prepare."""

    @contextmanager
    def evaluate(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> Iterator[JobResult]:
        """Do as the script says."""
        assert slot.name == "cpu0"
        assert self.worker.busy
        assert self.lease is not None
        assert (job, cancel) == (self.lease.job, self.lease.cancel)
        on_progress(Progress(phase="test", done=1, total=2))
        yield self.script(self.lease)
        self.clear()

    def give(self, job_id: int) -> None:
        """A job."""
        self.lease = self.parts.keeper.hold(job(job_id))
        self.signals.wake.clear()
        self.worker.give(self.lease)

    def wait_free(self) -> None:
        """Until the slot is free again."""
        assert self.signals.wake.wait(PATIENCE_S)
        assert not self.worker.busy

    def do(self, job_id: int) -> None:
        """One job, and its outcome to where it belongs."""
        self.give(job_id)
        self.wait_free()
        self.wait_written()

    def wait_written(self) -> None:
        """Until every outcome is written."""
        wait_until(lambda: not self.writer.pending, "every outcome is written")

    def end(self) -> None:
        """Stop the thread."""
        self.stop.set()
        self.give_up.set()
        self.worker.nudge()
        self.writer.nudge()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def work(parts: Parts) -> Iterator[Callable[..., Working]]:
    """Starts slots that end with the test."""
    made: list[Working] = []

    def start() -> Working:
        made.append(Working(parts))
        return made[-1]

    yield start
    for working in made:
        working.parts.store.meanwhile = lambda: None
        working.end()


def test_a_result_is_committed_while_its_slot_is_still_being_cleared(
    parts: Parts, work: Callable[..., Working]
) -> None:
    """Once, with no progress after it; and what breaks afterwards is no failure of the job's, which is over."""

    def clear() -> None:
        working.wait_written()
        assert working.worker.busy
        assert parts.store.completed
        if len(parts.store.completed) == 2:
            raise EvaluationError("the container is still there")

    working = work()
    working.clear = clear
    working.do(1)
    working.do(2)
    assert parts.store.completed == [(1, result()), (2, result())]
    assert (parts.store.failed, parts.publisher._progress) == ([], {})
    assert parts.events() == ["claimed", "done"] * 2
    assert (parts.held(), parts.spool.count) == (set(), 0)


def test_failures_of_ours_name_their_cause_and_slot(parts: Parts, work: Callable[..., Working]) -> None:
    """Infrastructure, bugs, overtime, an unrequested stop: each is a failure, none a verdict."""

    def overtime(lease: Lease) -> JobResult:
        lease.stop(StopReason.OVERTIME)
        raise EvaluationError("the container is gone")

    def broken(_lease: Lease) -> JobResult:
        raise EvaluationError("the harness said nothing; password=hunter2")

    def bug(_lease: Lease) -> JobResult:
        raise ZeroDivisionError("a bug")

    def unasked(_lease: Lease) -> JobResult:
        raise CancelledByRequest("?")

    working = work()
    for number, (script, troubled) in enumerate(((overtime, False), (bug, False), (unasked, False), (broken, True))):
        working.script = script
        working.do(number)
        assert working.signals.check_engine.is_set() is troubled
    assert parts.store.failed == [
        (0, "the run took longer than the host's max_run_s and was stopped", "cpu0"),
        (1, "unexpected ZeroDivisionError: a bug", "cpu0"),
        (2, "the evaluation stopped although nothing had asked it to", "cpu0"),
        (3, "the harness said nothing; password=***", "cpu0"),
    ]
    assert parts.events() == ["claimed", "queued"] * 4
