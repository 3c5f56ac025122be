"""A host that is drained from outside: finishes, claims nothing, says why, and claims again when told."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from runner.base.model import JobState, Verdict
from tests.integration.daemon.rig import MakeRig, Rig


@pytest.fixture
def slow(make_rig: MakeRig) -> Rig:
    """A rig that hardly ever polls: what happens soon was announced."""
    return make_rig(poll_s=300.0)


def test_a_drained_host_finishes_its_run_and_claims_no_other(slow: Rig) -> None:
    """And it is heard at once, although the host is busy; undrained, it claims at once."""
    gate, running = slow.begin()
    with capture_logs() as logs:
        slow.store.drain("test-host", reason="fan 3 is loud")
        slow.wait_for(lambda: slow.waiting_for == "draining: fan 3 is loud", "it heard")
        waiting = slow.submit()
        assert not gate.cancelled.is_set()
        gate.go.set()
        slow.wait_done(running)
        slow.sql("SELECT pg_notify('runner_queue', 'CPU')")
        slow.wait_for(lambda: slow.daemon is not None and not slow.daemon._running(), "it is idle")
        assert slow.job(waiting).state is JobState.QUEUED
        slow.store.undrain("test-host")
        slow.wait_done(waiting)
        # The job may be over before the loop that claimed it has said so.
        slow.wait_for(lambda: slow.waiting_for is None, "it says that it serves")
    assert slow.job(running).verdict is Verdict.ACCEPTED
    assert [line["reason"] for line in logs if line["event"] == "claiming_paused"] == ["draining: fan 3 is loud"]


def test_draining_survives_a_restart_of_the_daemon(make_rig: MakeRig) -> None:
    """The flag is the host's, not the process's; the service manager still hears that the daemon is up."""
    first, second = make_rig(), make_rig()
    first.start()
    first.store.drain("test-host")
    first.wait_for(lambda: first.waiting_for == "draining: no reason was given", "it heard")
    first.stop()
    submission = first.submit()
    second.start(ready=False)
    second.wait_for(lambda: second.waiting_for == "draining: no reason was given", "it is still draining")
    assert second.job(submission).state is JobState.QUEUED
    second.store.undrain("test-host")
    second.wait_done(submission)
