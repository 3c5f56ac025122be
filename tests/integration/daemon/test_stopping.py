"""The way out: finish, or give back; by events in process and by signals to a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from runner.base.model import JobState, Verdict
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import MakeRig, Rig
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
