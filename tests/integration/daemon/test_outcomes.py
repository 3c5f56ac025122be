"""Between a slot and the commit of what it found: the slot works on, and nothing is lost, doubled or forgotten.

Results that outlive an outage are kept on disk and committed once, by this process or the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs

from runner.base.errors import StaleAttemptError
from runner.base.model import Job, JobResult, JobState, Verdict
from runner.daemon import slot
from runner.daemon.outcomes.writer import OutcomeWriter
from runner.store import Completion, Store
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, MakeRig, Rig
from tests.support.waiting import PATIENCE_S

HOLD = "SELECT FROM leaderboard.submission WHERE id = %(id)s FOR UPDATE"


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


LATE = f"SELECT state = 'running' AND lease_expires_at < now() AS late FROM {JOBS}"  # noqa: S608 - a text of ours
STALE = "SELECT attempt, verdict FROM runner.stale_result"


def spool_one(make_rig: MakeRig, proxy: Proxy) -> tuple[Rig, int]:
    """A daemon whose run ends behind a door that was shut meanwhile; the submission whose result is spooled then."""
    rig = make_rig(daemon_url=proxy.url)
    proxy.open()
    gate, submission = rig.begin()
    proxy.shut()
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    return rig, submission


def test_a_daemon_killed_with_a_spooled_result_is_followed_by_one_that_commits_it(
    make_rig: MakeRig, make_process: Callable[..., Process], proxy: Proxy, tmp_path: Path
) -> None:
    """SIGKILL during the outage: the next process takes it over before it claims; the job is not evaluated again."""
    # A lease that outlasts the test: only the next process itself may take the job back.
    settings = {"state_dir": str(tmp_path / "state"), "lease_s": 600.0}
    rig = make_rig(**settings)
    proxy.open()
    process = make_process(url=proxy.url, **settings)
    spooled = rig.submit()
    process.expect("begun")
    proxy.shut()
    waiting = rig.submit()
    process.open_gate()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    process.close()
    rig.start()
    first, second = (rig.done(each) for each in (spooled, waiting))
    assert [(job.verdict, job.attempt, len(job.runs)) for job in (first, second)] == [(Verdict.ACCEPTED, 1, 1)] * 2
    assert [job_id for job_id, _, _ in rig.evaluator.seen] == [second.id]
    # It goes once it is committed.
    rig.wait_for(lambda: rig.spool.count == 0, "nothing waits any more")


def test_a_daemon_told_to_stop_during_an_outage_leaves_its_results_to_the_next(make_rig: MakeRig, proxy: Proxy) -> None:
    """It does not wait for the database: a spooled result is nothing that runs."""
    rig, submission = spool_one(make_rig, proxy)
    assert rig.stop() == 0
    next_rig = make_rig(state_dir=rig.config.state_dir)
    next_rig.start()
    job = next_rig.done(submission)
    assert (job.verdict, job.attempt, next_rig.evaluator.seen) == (Verdict.ACCEPTED, 1, [])


def test_a_result_whose_commit_hangs_is_spooled_when_the_daemon_ends(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock is held: told to stop at once, the daemon spools what is being committed, and says it went well."""
    monkeypatch.setattr("runner.daemon.loop.ABORT_S", 0.2)
    monkeypatch.setattr("runner.daemon.loop.JOIN_S", 0.2)
    rig = make_rig()
    submission = rig.submit()
    with rig.locked("SELECT FROM leaderboard.submission FOR UPDATE"):
        rig.start()
        writer = rig.daemon._writer if rig.daemon else None
        rig.wait_for(lambda: writer and writer.pending, "the result cannot be committed")
        rig.control.request_abort()
        assert rig.join() == 0
        assert rig.spool.count == 1
    next_rig = make_rig(state_dir=rig.config.state_dir)
    next_rig.start()
    next_rig.wait_for(lambda: next_rig.spool.count == 0, "delivered")
    job = next_rig.done(submission)
    assert (job.verdict, job.attempt, len(job.runs)) == (Verdict.ACCEPTED, 1, 1)
    assert next_rig.evaluator.seen == []


def test_a_result_of_a_job_that_another_host_took_meanwhile_is_evidence(make_rig: MakeRig, proxy: Proxy) -> None:
    """The other host's verdict stands, with its runs and no others."""
    rig, submission = spool_one(make_rig, proxy)
    rig.expire_leases()
    assert rig.sql(LATE)[0]["late"]
    other = make_rig(host_name="other-host")
    other.start()
    job = other.done(submission)
    assert (job.attempt, job.host) == (2, "other-host")
    with capture_logs() as logs:
        proxy.open()
        rig.wait_for(lambda: rig.spool.count == 0, "delivered")
    assert [line["event"] for line in logs].count("spooled_result_too_late") == 1
    assert rig.sql(STALE) == [{"attempt": 1, "verdict": "accepted"}]
    job = rig.job(submission)
    assert (job.verdict, job.attempt, len(job.runs)) == (Verdict.ACCEPTED, 2, 1)
    rig.wait_for(lambda: not rig.daemon or not rig.daemon._keeper.held(), "its lease is let go")
