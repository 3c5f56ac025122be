"""A slot at work: which ending of an evaluation becomes which write, and where a result waits for the database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.daemon.committer import Committer
from runner.daemon.slots import SlotWorker
from runner.errors import CancelledByRequest, EvaluationError
from runner.lease import Lease, StopReason
from runner.model import Job, JobResult, Progress, Slot
from tests.unit.daemon.fakes import Parts
from tests.unit.spool.samples import job, result

Script = Callable[[Lease], JobResult]


class Working:
    """One slot's worker in a thread, on fakes."""

    def __init__(self, parts: Parts, script: Script, *, patience_s: float = 30.0) -> None:
        self.parts = parts
        self.script = script
        self.lease: Lease | None = None
        self.free = threading.Semaphore(0)
        self.trouble = threading.Event()
        self.give_up = threading.Event()
        self.stop = threading.Event()
        self.worker = SlotWorker(
            Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0,)),
            host="h",
            evaluator=self,
            store_factory=parts.fake,
            keeper=parts.keeper,
            announcer=parts.announcer,
            delivery=parts.delivery,
            committer=Committer(parts.fake),
            on_free=self.free.release,
            on_trouble=self.trouble.set,
            give_up=self.give_up,
            commit_patience_s=patience_s,
        )
        self.thread = threading.Thread(target=self.worker.run, args=(self.stop,), name="slot", daemon=True)
        self.thread.start()

    def prepare(self, _slots: object) -> None:
        """Nothing to prepare."""

    def run(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> JobResult:
        """Do as the script says."""
        assert slot.name == "cpu0"
        assert self.lease is not None
        assert (job, cancel) == (self.lease.job, self.lease.cancel)
        on_progress(Progress(phase="test", done=1, total=2))
        return self.script(self.lease)

    def give(self, job_id: int) -> None:
        """A job."""
        self.lease = self.parts.keeper.hold(job(job_id))
        self.worker.give(self.lease)
        assert self.worker.busy

    def wait_free(self) -> None:
        """Until the slot is free again."""
        assert self.free.acquire(timeout=30)
        assert not self.worker.busy

    def do(self, job_id: int) -> None:
        """One job from hand to hand."""
        self.give(job_id)
        self.wait_free()

    def end(self) -> None:
        """Stop the thread."""
        self.stop.set()
        self.give_up.set()
        self.worker.nudge()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Everything around a slot."""
    return Parts(tmp_path)


@pytest.fixture
def work(parts: Parts) -> Iterator[Callable[..., Working]]:
    """Starts slots that end with the test."""
    made: list[Working] = []

    def start(script: Script = lambda _lease: result(), parts: Parts = parts, **settings: float) -> Working:
        made.append(Working(parts, script, **settings))
        return made[-1]

    yield start
    for working in made:
        working.parts.store.meanwhile = lambda: None
        working.end()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A back-off of no time that still counts."""

    def next_s(backoff: object) -> float:
        backoff.failures += 1  # type: ignore[attr-defined]  # stands in for a method
        return 0.001

    monkeypatch.setattr("runner.backoff.Backoff.next_s", next_s)


def test_a_result_is_committed_and_announced_and_the_slot_is_free(parts: Parts, work: Callable[..., Working]) -> None:
    """Claimed, then done; no lease and no progress is left behind."""
    working = work()
    working.do(1)
    assert parts.store.completed == [(1, result())]
    assert parts.events() == ["claimed", "done"]
    assert parts.announcer._events[0]["host"] == "h"
    assert parts.announcer._progress == {}
    assert (parts.held(), parts.spool.count) == (set(), 0)


def test_an_event_is_sent_after_the_commit(parts: Parts, work: Callable[..., Working]) -> None:
    """A frontend that hears `done` must find the result."""
    at_commit: list[list[str]] = []
    parts.store.meanwhile = lambda: at_commit.append(parts.events())
    work().do(1)
    assert at_commit == [["claimed"]]


def test_a_slot_keeps_its_connection_while_work_comes_and_no_longer(
    parts: Parts, work: Callable[..., Working], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection per job would cost more than many a job."""
    monkeypatch.setattr("runner.daemon.slots.IDLE_S", 0.2)
    closed = threading.Event()
    monkeypatch.setattr(parts.store, "close", closed.set)
    working = work()
    for number in range(3):
        working.do(number)
    assert parts.opened == ["commit", "slot cpu0"]
    assert closed.wait(30)
    working.do(4)
    assert parts.opened == ["commit", "slot cpu0"]


@pytest.mark.parametrize(
    ("reason", "wrote", "said"),
    [
        (StopReason.CANCELLED, [("cancelled", 1)], ["claimed", "cancelled"]),
        (StopReason.SHUTDOWN, [("release", 1)], ["claimed", "queued"]),
        (StopReason.LOST, [], ["claimed"]),
    ],
)
def test_a_run_that_was_told_to_stop_is_settled_as_what_it_was_told(
    parts: Parts, work: Callable[..., Working], reason: StopReason, wrote: list[tuple[str, int]], said: list[str]
) -> None:
    """Cancelled, given back, or nothing at all when the job is no longer ours."""

    def told(lease: Lease) -> JobResult:
        lease.stop(reason)
        raise CancelledByRequest("told to")

    work(told).do(1)
    assert (parts.store.given_back, parts.events(), parts.store.completed) == (wrote, said, [])
    assert parts.announcer._gpu_types == ({"CPU"} if "queued" in said else set())
    assert parts.held() == set()


def test_failures_of_ours_name_their_cause_and_slot(parts: Parts, work: Callable[..., Working]) -> None:
    """Infrastructure, bugs, overtime, a stop nobody asked for: each is a failure, none a verdict."""

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
        assert working.trouble.is_set() is troubled
    assert parts.store.failed == [
        (0, "the run took longer than the host's max_run_s and was stopped", "cpu0"),
        (1, "unexpected ZeroDivisionError: a bug", "cpu0"),
        (2, "the evaluation stopped although nothing had asked it to", "cpu0"),
        (3, "the harness said nothing; password=***", "cpu0"),
    ]
    assert parts.events() == ["claimed", "queued"] * 4


def test_a_stale_result_is_the_stores_evidence(parts: Parts, work: Callable[..., Working]) -> None:
    """The slot drops it, without an event, and goes on."""
    parts.store.stale = {1}
    working = work()
    working.do(1)
    working.do(2)
    assert [job_id for job_id, _ in parts.store.completed] == [2]
    assert (parts.spool.count, parts.held(), parts.events()) == (0, set(), ["claimed", "claimed", "done"])


def test_a_refused_result_fails_its_job_with_the_cause(parts: Parts, work: Callable[..., Working]) -> None:
    """A value that PostgreSQL does not take is neither waited for nor spooled."""
    parts.store.refused = {1}
    work().do(1)
    assert parts.store.failed == [(1, "unexpected ValueError: a value of job 1 is not taken; password=***", "cpu0")]
    assert (parts.spool.count, parts.held()) == (0, set())


def test_while_the_database_is_away_results_are_spooled_and_the_slot_is_free(
    parts: Parts, work: Callable[..., Working]
) -> None:
    """Their leases stay held, without a limit to the run's time, until they are delivered."""
    parts.store.away.set()
    working = work()
    with capture_logs() as logs:
        working.do(1)
        working.do(2)
    assert parts.delivery.keys() == [(1, 2), (2, 2)]
    assert parts.held() == {(1, False), (2, False)}
    assert parts.events() == ["claimed", "claimed"]
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "database away: the result waits in the spool"
    ] * 2
    parts.store.away.clear()
    assert parts.delivery.deliver_once(parts.fake("test")) == 2
    assert (parts.held(), parts.events()[2:]) == (set(), ["done", "done"])


@pytest.mark.usefixtures("_quick")
def test_without_room_in_the_spool_the_result_waits_in_memory(tmp_path: Path, work: Callable[..., Working]) -> None:
    """Said once; the slot is busy, and its lease is held, until the database is back."""
    parts = Parts(tmp_path, max_bytes=10)
    parts.store.away.set()
    working = work(parts=parts)
    with capture_logs() as logs:
        working.give(1)
        while parts.store.calls < 10:
            assert working.worker.busy
        assert parts.held() == {(1, False)}
        parts.store.away.clear()
        working.wait_free()
    assert parts.store.completed == [(1, result())]
    assert (parts.held(), parts.events()) == (set(), ["claimed", "done"])
    said = [line["event"] for line in logs if line["log_level"] in ("warning", "error")]
    assert said == ["the spool does not work", "database away: the job's end waits in memory"]


@pytest.mark.usefixtures("_quick")
def test_room_that_comes_later_is_used(tmp_path: Path, work: Callable[..., Working]) -> None:
    """A disk that was full for a while."""
    parts = Parts(tmp_path, max_bytes=10)
    parts.store.away.set()
    working = work(parts=parts)
    working.give(1)
    while parts.store.calls < 3:
        assert working.worker.busy
    parts.spool.max_bytes = 1 << 20
    working.wait_free()
    assert parts.delivery.keys() == [(1, 2)]


@pytest.mark.usefixtures("_quick")
def test_a_failure_waits_for_the_database_in_memory(parts: Parts, work: Callable[..., Working]) -> None:
    """There is nothing to spool but the cause, and nothing can be claimed meanwhile anyway."""

    def broken(_lease: Lease) -> JobResult:
        raise EvaluationError("the engine went away")

    parts.store.away.set()
    working = work(broken)
    working.give(1)
    while parts.store.calls < 5:
        assert working.worker.busy
    assert parts.spool.count == 0
    parts.store.away.clear()
    working.wait_free()
    assert parts.store.failed == [(1, "the engine went away", "cpu0")]


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("how", ["patience", "give_up"])
def test_what_is_waited_for_in_vain_is_left_to_the_lease(
    tmp_path: Path, work: Callable[..., Working], how: str
) -> None:
    """Patience ends, or the daemon goes down at once: the slot is free, and the log says what becomes of the job."""
    parts = Parts(tmp_path, max_bytes=0)
    parts.store.away.set()
    working = work(parts=parts, patience_s=0.0 if how == "patience" else 1e9)
    with capture_logs() as logs:
        working.give(1)
        if how == "give_up":
            working.give_up.set()
        working.wait_free()
    assert "job could not be settled; it is evaluated again when its lease expires" in [
        line["event"] for line in logs if line["log_level"] == "error"
    ]
    assert parts.held() == set()


def test_a_result_whose_commit_hangs_can_be_rescued(parts: Parts, work: Callable[..., Working]) -> None:
    """A database that swallows packets: whoever ends the daemon has the result spooled, and it is committed once."""
    hanging, let_go = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert let_go.wait(30)

    parts.store.meanwhile = hang
    working = work()
    assert not working.worker.rescue()
    working.give(1)
    assert hanging.wait(30)
    assert working.worker.rescue()
    assert parts.delivery.keys() == [(1, 2)]
    parts.store.away.set()
    parts.store.meanwhile = lambda: None
    let_go.set()
    working.wait_free()
    assert parts.delivery.keys() == [(1, 2)]
    assert not working.worker.rescue()
    parts.store.away.clear()
    assert parts.delivery.deliver_once(parts.fake("test")) == 1
    assert (parts.store.completed, parts.held()) == ([(1, result())], set())
