"""The way out and back: a daemon finishes or gives back; what its earlier process left is dealt with at once.

Stopped by events in process and by signals to a process of its own; it acts in its own name only.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterable

import psycopg
import pytest
from structlog.testing import capture_logs

from runner.base.model import JobState, Slot, Verdict
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, Evaluator, MakeRig, Rig, accepted
from tests.support.waiting import PATIENCE_S


def test_stopping_finishes_the_run_and_claims_no_other(rig: Rig) -> None:
    """Exit code 0, the result is there, the next job waits for another host."""
    gate, running = rig.begin()
    waiting = rig.submit()
    rig.control.request_stop()
    rig.wait_for(lambda: rig.waiting_for == "shutdown", "it drains")
    assert not gate.cancelled.is_set()
    gate.go.set()
    assert rig.join() == 0
    assert rig.job(running).verdict is Verdict.ACCEPTED
    assert rig.job(waiting).state is JobState.QUEUED
    assert len(rig.evaluator.seen) == 1
    assert [host.stopped_at is not None for host in rig.store.hosts()] == [True]


def test_a_draining_daemon_keeps_its_lease(rig: Rig) -> None:
    """A cancel request still reaches a run that is being waited for."""
    _, submission = rig.begin()
    rig.control.request_stop()
    rig.wait_for(lambda: rig.waiting_for == "shutdown", "it drains")
    rig.store.cancel(submission)
    assert rig.join() == 0
    assert rig.job(submission).state is JobState.CANCELLED


def test_patience_with_a_run_ends_with_the_drain_timeout(make_rig: MakeRig) -> None:
    """`drain_timeout_s` gives back what does not finish in time."""
    rig = make_rig(drain_timeout_s=0.1)
    gate, submission = rig.begin()
    assert rig.stop() == 0
    assert gate.cancelled.is_set()
    assert rig.job(submission).state is JobState.QUEUED


def test_a_job_cannot_be_given_back_to_a_database_that_is_away(
    make_rig: MakeRig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told twice, the daemon does not wait for the database: the lease expires and another host takes the job."""
    monkeypatch.setattr("runner.daemon.loop.ABORT_S", 0.2)
    rig = make_rig(daemon_url=proxy.url)
    proxy.open()
    _, submission = rig.begin()
    proxy.shut()
    rig.control.request_abort()
    assert rig.join() == 0
    rig.expire_leases()
    assert len(rig.store.reclaim()) == 1
    job = rig.job(submission)
    assert (job.state, job.failures) == (JobState.QUEUED, 0)


def test_a_run_that_does_not_let_go_is_left_to_its_lease(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon ends, with exit code 1, although the evaluation hears nothing; what that finds is spooled."""
    monkeypatch.setattr("runner.daemon.loop.ABORT_S", 0.1)
    monkeypatch.setattr("runner.daemon.loop.JOIN_S", 0.1)
    gate, _ = rig.begin(heeds_cancel=False)
    rig.control.request_abort()
    assert rig.join() == 1
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the thread that was left behind ended")


def test_a_second_signal_gives_the_job_back(rig: Rig, make_process: Callable[..., Process]) -> None:
    """Twice SIGTERM: the gate stays closed, and the job is queued again, with no failure counted."""
    process = make_process()
    submission = rig.submit()
    process.expect("begun")
    process.child.send_signal(signal.SIGTERM)
    process.expect("stopping")
    process.child.send_signal(signal.SIGTERM)
    assert process.child.wait(PATIENCE_S) == 0
    job = rig.job(submission)
    assert (job.state, job.attempt, job.failures) == (JobState.QUEUED, 1, 0)


class Slow(Evaluator):
    """An evaluation environment that takes its time to get ready."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go = threading.Event()

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Wait for the test."""
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        super().prepare(slots)


def test_what_was_left_is_dealt_with_before_the_evaluation_environment(make_rig: MakeRig) -> None:
    """Containers go and jobs are given back while the environment is still being prepared, which may take minutes."""
    rig = make_rig(lease_s=3600.0)
    submission = rig.submit()
    rig.claim()
    slow = rig.evaluator = Slow()
    rig.start(ready=False)
    assert slow.begun.wait(PATIENCE_S)
    assert rig.job(submission).state is JobState.QUEUED
    assert rig.engine.reaped == 1
    slow.go.set()
    rig.wait_done(submission)


@pytest.mark.parametrize("missing", ["the evaluation environment", "the container engine"])
def test_the_lease_of_a_spooled_result_is_renewed_whatever_else_is_missing(make_rig: MakeRig, missing: str) -> None:
    """The database refuses the result for now; no other host may take its job meanwhile."""
    rig = make_rig(lease_s=30.0, heartbeat_s=0.2)
    submission = rig.submit()
    job = rig.claim(lease_s=0.1)
    assert rig.spool.put(job, accepted(), slot="cpu0")
    slow = rig.evaluator = Slow()
    if missing == "the container engine":
        rig.engine.up.clear()
    # To complete a job, its submission must be locked.
    with rig.locked("SELECT FROM leaderboard.submission FOR UPDATE"):
        rig.start(ready=False)
        rig.wait_for(lambda: slow.begun.is_set() or rig.waiting_for == missing, "it waits for what is missing")
        renewed = f"SELECT FROM {JOBS} WHERE lease_expires_at > started_at + interval '31.5 seconds'"
        rig.wait_for(lambda: rig.sql(renewed), "it is renewed, again and again")
        assert list(rig.store.reclaim()) == []
    assert (rig.done(submission).attempt, rig.evaluator.seen) == (1, [])
    slow.go.set()


def test_a_spooled_result_is_delivered_while_the_engine_is_down(make_rig: MakeRig) -> None:
    """Nothing of it needs an engine. What else ran is given back meanwhile, and frontends hear of it."""
    rig = make_rig(lease_s=3600.0)
    spooled, left = rig.submit(), rig.submit()
    job, _ = (rig.claim() for _ in range(2))
    assert rig.spool.put(job, accepted(found="before"), slot="cpu0")
    rig.engine.up.clear()
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("LISTEN runner_events")
        rig.start(ready=False)
        done = rig.done(spooled)
        rig.wait_for(lambda: rig.waiting_for == "the container engine", "it waits for the engine only")
        heard = [json.loads(note.payload) for note in connection.notifies(timeout=PATIENCE_S, stop_after=2)]
    assert (done.attempt, done.report) == (1, {"found": "before"})
    assert sorted((event["event"], event["submission_id"]) for event in heard) == [("done", spooled), ("queued", left)]
    assert (rig.engine.reaped, rig.evaluator.seen) == (0, [])
    rig.engine.up.set()
    rig.wait_done(left)
    assert rig.engine.reaped == 1


def test_two_daemons_do_not_share_a_name(make_rig: MakeRig) -> None:
    """The second one says so and waits, and takes nothing of the first one's; it serves when the first has gone.

    One that never had the name does not say goodbye in it.
    """
    first, second, third = make_rig(), make_rig(), make_rig()
    second.instance, third.instance = "another state directory", "a third one"
    first.start()
    with capture_logs() as logs:
        second.start(ready=False)
        second.wait_for(lambda: second.waiting_for == "the host name", "it noticed")
        second.wait_for(lambda: any("reason" in line for line in logs), "it says so")
        (reason,) = [line["reason"] for line in logs if "reason" in line]
        assert "host name 'test-host' belongs to another daemon" in reason
    third.start(ready=False)
    third.wait_for(lambda: third.waiting_for == "the host name", "it noticed, too")
    assert third.stop() == 0
    assert first.sql("SELECT stopped_at FROM runner.host") == [{"stopped_at": None}]
    first.wait_done(first.submit())
    assert first.stop() == 0
    assert second.daemon is not None
    assert second.daemon.readiness.ready.wait(PATIENCE_S)
    second.wait_done(second.submit())


def test_a_name_that_was_taken_during_an_outage_is_not_acted_in(make_rig: MakeRig, proxy: Proxy) -> None:
    """Cut off for long enough, a daemon finds another one under its name: the jobs that run in it are not its own."""
    rig = make_rig(daemon_url=proxy.url)
    proxy.open()
    rig.start()
    proxy.shut()
    rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
    rig.sql("UPDATE runner.host SET instance = 'another state directory', last_seen = now()")
    submission = rig.submit()
    rig.claim()
    proxy.open()
    rig.wait_for(lambda: rig.waiting_for == "the host name", "it noticed that, too")
    assert rig.job(submission).state is JobState.RUNNING
