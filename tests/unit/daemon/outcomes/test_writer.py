"""Results of several slots: handed over, committed together, each with its own outcome, and never lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.base.model import Job, JobResult
from runner.daemon.outcomes.writer import (
    HELD_S,
    LEFT_TO_ITS_LEASE,
    MAX_RESULTS,
    WAITING_PER_SLOT,
    Cancelled,
    Failed,
    Outcome,
    OutcomeWriter,
    Released,
)
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit.daemon.fakes import FakeStore, Parts
from tests.unit.daemon.outcomes.samples import job, result


class Crowd:
    """Slots that hand over while one commit is under way."""

    def __init__(self, parts: Parts, *, slots: int = 64, patience_s: float = 1e9) -> None:
        self.parts = parts
        self.store = parts.store
        self.late = FakeStore()
        self.now_s = 1000.0
        self.leaving = False
        self.wake = threading.Event()
        self.give_up = threading.Event()
        self.stop = threading.Event()
        self.under_way = threading.Event()
        self.go_on = threading.Event()
        self.batches: list[list[int]] = []
        self.writer = OutcomeWriter(
            lambda purpose: parts.fake(purpose, self.late if purpose == "late commit" else None),
            parts.keeper,
            parts.publisher,
            parts.replayer,
            slots=slots,
            wake=self.wake,
            leaving=lambda: self.leaving,
            give_up=self.give_up,
            patience_s=patience_s,
            clock=lambda: self.now_s,
        )
        commit_all = self.store.complete_all

        def noted(given: list[tuple[Job, JobResult]]) -> object:
            self.batches.append([one.id for one, _ in given])
            return commit_all(given)

        self.store.complete_all = noted  # type: ignore[method-assign, assignment]
        self._threads: list[threading.Thread] = []

    def start(self, *bodies: Callable[[threading.Event], None]) -> None:
        """Start the threads that write at once, or these."""
        for body in bodies or (self.writer.run, self.writer.run_endings):
            thread = threading.Thread(target=body, args=(self.stop,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, job_id: int, found: Outcome | None = None) -> None:
        """One slot's outcome; a result unless told otherwise."""
        self.writer.submit(job(job_id), found or result(), slot="cpu0")

    def hand_aside(self, job_id: int, found: JobResult, handed: threading.Event) -> None:
        """One slot's result, in a thread of the slot's own; `handed` is set when the slot may go on."""

        def run() -> None:
            self.submit(job_id, found)
            handed.set()

        threading.Thread(target=run, daemon=True).start()

    def hold(self) -> None:
        """In the middle of every write: wait for `go_on`."""
        self.under_way.set()
        assert self.go_on.wait(PATIENCE_S)

    def during_a_commit(self, *job_ids: int) -> None:
        """Job 0 is being committed; meanwhile these come; then the commit goes on, and all are settled."""
        self.store.meanwhile = self.hold
        self.start()
        self.submit(0)
        assert self.under_way.wait(PATIENCE_S)
        for job_id in job_ids:
            self.submit(job_id)
        self.store.meanwhile = lambda: None
        self.go_on.set()

    def wait_empty(self) -> None:
        """Until nothing is left."""
        self.wait(lambda: not self.writer.pending)

    def wait(self, condition: Callable[[], object]) -> None:
        """Until something is so."""
        wait_until(condition, "what the test waits for")

    def end(self) -> None:
        """Stop the threads."""
        self.stop.set()
        self.give_up.set()
        self.go_on.set()
        self.writer.nudge()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def crowd(parts: Parts) -> Iterator[Crowd]:
    """A writer that is not started yet."""
    made = Crowd(parts)
    yield made
    made.end()


def test_what_comes_during_a_commit_goes_with_the_next_one(crowd: Crowd) -> None:
    """One transaction for all of them, up to a bound, an event for each after it, and no lease is left."""
    crowd.during_a_commit(*range(1, MAX_RESULTS + 9))
    crowd.wait_empty()
    assert crowd.batches == [[0], [*range(1, MAX_RESULTS + 1)], [*range(MAX_RESULTS + 1, MAX_RESULTS + 9)]]
    assert crowd.parts.events() == ["done"] * (MAX_RESULTS + 9)
    assert crowd.parts.held() == set()


def test_a_single_result_is_committed_at_once_and_announced_afterwards(crowd: Crowd) -> None:
    """Nothing waits for company, and a frontend that hears `done` must find the result."""
    at_commit: list[list[str]] = []
    crowd.store.meanwhile = lambda: at_commit.append(crowd.parts.events())
    crowd.start()
    crowd.submit(1)
    crowd.wait_empty()
    assert (crowd.batches, at_commit, crowd.parts.events()) == ([[1]], [[]], ["done"])


def test_a_result_that_is_refused_or_stale_spoils_none_of_the_others(crowd: Crowd) -> None:
    """The refused one fails its job with the cause, the stale one is the store's evidence."""
    crowd.store.refused.add(2)
    crowd.store.stale.add(3)
    with capture_logs() as logs:
        crowd.during_a_commit(1, 2, 3)
        crowd.wait_empty()
    assert {job_id for job_id, _ in crowd.store.completed} == {0, 1}
    assert crowd.store.failed == [(2, "unexpected ValueError: a value of job 2 is not taken; password=***", "cpu0")]
    assert crowd.parts.events().count("queued") == 1
    assert crowd.parts.publisher._gpu_types == {"CPU"}
    said = [line["event"] for line in logs if line["log_level"] in ("warning", "error")]
    assert said == ["job_end_not_stored", "result_too_late"]


@pytest.mark.parametrize("by", ["number", "size"])
def test_a_slot_waits_when_too_many_results_are_not_written(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """So many for each slot, then the next one hands over and waits; it goes on when there is room.

    However many slots there are, the files that wait in memory are bounded together.
    """
    monkeypatch.setattr("runner.daemon.outcomes.writer.MAX_WAITING_BYTES", 100)
    crowd = Crowd(parts, slots=1)
    before = WAITING_PER_SLOT if by == "number" else 0
    for job_id in range(1, 1 + before):
        crowd.submit(job_id)
    handed = threading.Event()
    crowd.hand_aside(1 + before, result() if by == "number" else result(b"x" * 101), handed)
    crowd.wait(lambda: crowd.writer.pending == 1 + before)
    assert not handed.wait(0.05)
    crowd.start()
    assert handed.wait(PATIENCE_S)
    crowd.wait_empty()
    crowd.end()


def test_a_result_whose_submission_is_locked_comes_again_and_delays_no_other(crowd: Crowd) -> None:
    """Of a batch the others are committed; the one that has to wait is tried again, after a while by the spool."""
    crowd.store.held = {2}
    crowd.during_a_commit(1, 2, 3)
    crowd.wait(lambda: crowd.writer.pending == 1)
    assert sorted(number for number, _ in crowd.store.completed) == [0, 1, 3]
    crowd.now_s += 0.02
    crowd.writer.nudge()
    crowd.wait(lambda: crowd.batches[-1] == [2])
    assert crowd.parts.spool.count == 0
    crowd.now_s += HELD_S
    crowd.writer.nudge()
    crowd.wait_empty()
    assert crowd.parts.replayer.keys() == [(2, 2)]
    assert crowd.parts.held() == {(2, False)}


def test_a_commit_that_does_not_come_back_delays_no_other(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has waited for a while goes on a connection of its own, and is not committed again afterwards."""
    monkeypatch.setattr("runner.daemon.outcomes.writer.TURN_S", 0.01)
    crowd.store.meanwhile = crowd.hold
    crowd.start(crowd.writer.run)
    crowd.submit(0)
    assert crowd.under_way.wait(PATIENCE_S)
    crowd.submit(1)
    crowd.now_s += 1.0
    crowd.start(crowd.writer.run_late)
    crowd.wait(lambda: crowd.writer.pending == 1)
    assert [job_id for job_id, _ in crowd.late.completed] == [1]
    crowd.go_on.set()
    crowd.wait_empty()
    assert crowd.batches == [[0]]


@pytest.fixture
def without_spool(tmp_path: Path) -> Parts:
    """The database is away, and the spool cannot be written."""
    (tmp_path / "spool").write_text("no directory", encoding="ascii")
    made = Parts(tmp_path)
    made.store.away.set()
    return made


@pytest.mark.usefixtures("_quick")
def test_where_the_spool_fails_a_result_waits_in_memory(without_spool: Parts) -> None:
    """Said once; its lease is held until the database is back."""
    parts, crowd = without_spool, Crowd(without_spool)
    with capture_logs() as logs:
        crowd.start()
        crowd.submit(1)
        crowd.wait(lambda: parts.store.calls >= 10)
        assert parts.held() == {(1, False)}
        parts.store.away.clear()
        crowd.wait_empty()
    crowd.end()
    assert parts.store.completed == [(1, result())]
    assert (parts.held(), parts.events()) == (set(), ["done"])
    said = [line["event"] for line in logs if line["log_level"] in ("warning", "error")]
    assert said == ["spool_failed", "database_away_job_end_waits"]


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("how", ["patience", "give_up"])
def test_what_is_waited_for_in_vain_is_left_to_the_lease(without_spool: Parts, how: str) -> None:
    """Patience ends, or the daemon goes down at once: the log says what becomes of the job."""
    crowd = Crowd(without_spool, patience_s=-1.0 if how == "patience" else 1e9)
    with capture_logs() as logs:
        crowd.submit(1)
        if how == "give_up":
            assert crowd.writer.spool_pending() == [job(1)]
            crowd.give_up.set()
        crowd.start()
        crowd.wait_empty()
    crowd.end()
    assert LEFT_TO_ITS_LEASE in [line["event"] for line in logs if line["log_level"] == "error"]
    assert without_spool.held() == set()


def test_outcomes_without_a_result_are_written_and_told(crowd: Crowd) -> None:
    """Each in its own way, beside results; one that is no longer ours is dropped; no lease is left."""
    crowd.store.stale.add(4)
    crowd.start()
    crowd.submit(1, Failed(error="the engine went away"))
    crowd.submit(2, Cancelled())
    crowd.submit(3, Released(reason="the daemon was told to stop at once"))
    crowd.submit(4, Cancelled())
    crowd.submit(5)
    crowd.wait(lambda: crowd.writer.pending == 0)
    assert crowd.store.failed == [(1, "the engine went away", "cpu0")]
    assert crowd.store.given_back == [("cancelled", 2), ("release", 3)]
    assert [job_id for job_id, _ in crowd.store.completed] == [5]
    assert sorted(crowd.parts.events()) == ["cancelled", "done", "queued", "queued"]
    assert (crowd.parts.held(), crowd.parts.spool.count) == (set(), 0)


def test_an_ending_that_waits_for_a_lock_delays_no_result(crowd: Crowd) -> None:
    """The database answers after half a minute at worst; other slots' results are committed meanwhile."""

    def hold_the_first_write() -> None:
        crowd.store.meanwhile = lambda: None
        crowd.hold()

    crowd.store.meanwhile = hold_the_first_write
    crowd.start()
    crowd.submit(1, Failed(error="the engine went away"))
    assert crowd.under_way.wait(PATIENCE_S)
    crowd.submit(2)
    crowd.wait(lambda: crowd.writer.pending == 1)
    assert [job_id for job_id, _ in crowd.store.completed] == [2]
    crowd.go_on.set()
    crowd.wait_empty()
    assert crowd.store.failed == [(1, "the engine went away", "cpu0")]


def test_a_thread_that_breaks_finds_its_results_again(crowd: Crowd) -> None:
    """Started again, it writes what it had in hand."""
    announce = crowd.parts.publisher.publish

    def broken(_event: object) -> None:
        crowd.parts.publisher.publish = announce  # type: ignore[method-assign]
        raise ZeroDivisionError("a bug")

    crowd.parts.publisher.publish = broken  # type: ignore[method-assign, assignment]
    crowd.submit(1)
    with pytest.raises(ZeroDivisionError):
        crowd.writer.run(crowd.stop)
    assert crowd.writer.pending == 1
    crowd.start()
    crowd.wait_empty()
