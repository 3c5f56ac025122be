"""Results that outlive an outage: kept on disk and committed once, by this process or the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError
from runner.base.model import Job, JobResult, Verdict
from runner.store import Completion, Store, migrate
from tests.chaos.server import Server
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, MakeRig, Rig

LATE = f"SELECT state = 'running' AND lease_expires_at < now() AS late FROM {JOBS}"  # noqa: S608 - a text of ours
STALE = "SELECT attempt, verdict FROM runner.stale_result"


@pytest.fixture
def rig(make_rig: MakeRig, proxy: Proxy) -> Rig:
    """A daemon behind an open door."""
    made = make_rig(daemon_url=proxy.url)
    proxy.open()
    return made


def spool_one(rig: Rig, proxy: Proxy) -> int:
    """Have a run end behind a shut door; the submission whose result is spooled then."""
    gate, submission = rig.begin()
    proxy.shut()
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    return submission


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


def test_a_daemon_told_to_stop_during_an_outage_leaves_its_results_to_the_next(
    make_rig: MakeRig, rig: Rig, proxy: Proxy
) -> None:
    """It does not wait for the database: a spooled result is nothing that runs."""
    submission = spool_one(rig, proxy)
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


def test_a_result_of_a_job_that_another_host_took_meanwhile_is_evidence(
    make_rig: MakeRig, rig: Rig, proxy: Proxy
) -> None:
    """The other host's verdict stands, with its runs and no others."""
    submission = spool_one(rig, proxy)
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


def test_an_answer_that_was_lost_does_not_make_a_second_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit went through and the connection broke: the same result comes again, by way of the spool."""
    complete, complete_all = Store.complete, Store.complete_all
    again: list[Completion] = []

    def deaf(store: Store, results: Sequence[tuple[Job, JobResult]]) -> None:
        complete_all(store, results)
        raise DatabaseUnavailableError("the connection broke after the commit")

    def heard(store: Store, job: Job, result: JobResult) -> Completion:
        again.append(complete(store, job, result))
        return again[-1]

    monkeypatch.setattr(Store, "complete_all", deaf)
    monkeypatch.setattr(Store, "complete", heard)
    rig.start()
    submission = rig.submit()
    rig.wait_for(lambda: again, "it came again")
    assert again == [Completion(submission_done=True)]
    job = rig.done(submission)
    assert (job.attempt, len(job.runs)) == (1, 1)
    assert rig.sql(STALE) == []
    rig.wait_for(lambda: rig.spool.count == 0, "forgotten")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own, which may be stopped."""
    with Server() as made:
        made.start()
        yield made


def test_a_crash_of_the_server_itself_during_a_run_costs_nothing(make_rig: MakeRig, server: Server) -> None:
    """An immediate stop, away for longer than the lease, recovery: one commit, one evaluation, and work goes on."""
    migrate(server.url("postgres"))
    rig = make_rig(database=server.url("postgres"), lease_s=8.0)
    gate, submission = rig.begin()
    rig.store.close()
    server.crash()
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    threading.Event().wait(rig.config.lease_s)
    server.start()
    job = rig.done(submission)
    assert (job.verdict, job.attempt, job.failures, len(job.runs)) == (Verdict.ACCEPTED, 1, 0, 1)
    assert [job_id for job_id, _, _ in rig.evaluator.seen] == [job.id]
    assert rig.sql(STALE) == []
    rig.wait_done(rig.submit())
