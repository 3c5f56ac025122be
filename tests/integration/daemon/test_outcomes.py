"""Between a slot and the commit of what it found: the slot works on, and nothing is lost, doubled or forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from runner.base.errors import StaleAttemptError
from runner.base.model import Job, JobResult, JobState, Verdict
from runner.daemon import slot
from runner.daemon.outcomes.writer import OutcomeWriter
from runner.store import Completion, Store
from tests.integration.daemon.process import Process
from tests.integration.daemon.rig import MakeRig, Rig
from tests.support.waiting import PATIENCE_S

HOLD = "SELECT FROM leaderboard.submission WHERE id = %(id)s FOR UPDATE"
END_STATEMENTS = """
    SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


@contextmanager
def held(rig: Rig, submission: int) -> Iterator[psycopg.Connection]:
    """Lock a submission, so that none of its results can be committed."""
    with psycopg.connect(rig.url) as connection:
        connection.execute(HOLD.encode(), {"id": submission})
        yield connection


def pending(rig: Rig) -> int:
    """How many results of a rig's daemon are handed over and not committed."""
    assert rig.daemon is not None
    return rig.daemon._writer.pending


def busy(rig: Rig) -> bool:
    """Whether a slot of a rig's daemon has a job in hand."""
    assert rig.daemon is not None
    return any(worker.busy for worker in rig.daemon._workers)


def test_a_slot_takes_the_next_job_while_its_last_result_cannot_be_committed(rig: Rig) -> None:
    """One slot, two jobs; the first one's submission is held, and its lease with it until it is committed."""
    gate, first = rig.begin()
    with held(rig, first):
        gate.go.set()
        rig.wait_done(rig.submit())
        running = rig.job(first)
        assert running.state is JobState.RUNNING
        assert rig.daemon is not None
        keeper = rig.daemon._keeper
        rig.wait_for(lambda: pending(rig) == 1, "the second one is settled")
        rig.wait_for(lambda: [lease.job.id for lease in keeper.held()] == [running.id], "the first one is held on to")
    job = rig.done(first)
    assert (job.verdict, job.attempt, len(job.runs), rig.spool.count) == (Verdict.ACCEPTED, 1, 1, 0)


def test_a_secret_run_comes_before_the_next_submission(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot waits until the public result is committed, and finds on it what the public run has left for it."""
    waits, complete_all, wait = threading.Event(), Store.complete_all, OutcomeWriter.wait_until_over

    def slow(store: Store, results: Sequence[tuple[Job, JobResult]]) -> Sequence[Completion | StaleAttemptError | None]:
        rig.wait_for(lambda: waits.is_set() or not busy(rig), "the slot waits, or is free")
        return complete_all(store, results)

    def told(writer: OutcomeWriter, job: Job, timeout_s: float) -> None:
        assert not job.secret
        waits.set()
        wait(writer, job, timeout_s)

    monkeypatch.setattr(slot, "COMMIT_WAIT_S", PATIENCE_S)
    monkeypatch.setattr(Store, "complete_all", slow)
    monkeypatch.setattr(OutcomeWriter, "wait_until_over", told)
    first, second = (rig.submit(mode="leaderboard") for _ in range(2))
    rig.start()
    views = rig.wait_done(first, second)
    assert [job for job, _, _ in rig.evaluator.seen] == [job.id for view in views for job in view.jobs]
    assert [job.secret for view in views for job in view.jobs] == [False, True] * 2


def test_a_commit_that_hangs_keeps_no_slot(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submission is held; the next public run begins meanwhile."""
    monkeypatch.setattr(slot, "COMMIT_WAIT_S", 0.01)
    gate, first = rig.begin(mode="leaderboard")
    with held(rig, first):
        gate.go.set()
        rig.wait_done(rig.submit(mode="leaderboard"))
        assert pending(rig) == 1
    rig.wait_done(first)


def test_a_daemon_that_is_told_to_stop_waits_for_what_was_handed_over(rig: Rig) -> None:
    """No slot is busy any more, and the daemon ends only when the result is committed."""
    gate, submission = rig.begin()
    with held(rig, submission):
        gate.go.set()
        rig.wait_for(lambda: pending(rig) == 1 and not busy(rig), "it is handed over")
        rig.control.request_stop()
        rig.wait_for(lambda: rig.waiting_for == "shutdown", "it drains")
        assert rig.exit_reason is None
    assert rig.join() == 0
    job = rig.job(submission)
    assert (job.verdict, job.attempt, rig.spool.count) == (Verdict.ACCEPTED, 1, 0)


def test_a_daemon_killed_between_evaluation_and_commit_costs_an_evaluation(
    make_rig: MakeRig, make_process: Callable[..., Process], tmp_path: Path
) -> None:
    """SIGKILL while the result waits in memory: the next process evaluates the job again, and one result counts."""
    settings = {"state_dir": str(tmp_path / "state"), "lease_s": 600.0}
    rig = make_rig(**settings)
    process = make_process(**settings)
    submission = rig.submit()
    process.expect("begun")
    with held(rig, submission) as connection:
        process.open_gate()
        process.expect("handed")
        process.close()
        # The server goes on with a statement that a client has sent before it died.
        connection.execute(END_STATEMENTS)
    assert rig.spool.count == 0
    rig.start()
    job = rig.done(submission)
    assert (job.verdict, job.attempt, len(job.runs)) == (Verdict.ACCEPTED, 2, 1)
