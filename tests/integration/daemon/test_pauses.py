"""What makes a host claim nothing, and says so: it is drained, a disk is full, a container does not go."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from runner.base.disk import DiskFloor
from runner.base.model import JobState, Verdict
from runner.daemon.monitoring.readiness import DISK, SLOTS
from runner.evaluation.leftovers import keep_out
from sandbox.errors import EngineRefused
from tests.integration.daemon.rig import MakeRig, Rig, cpu_slots
from tests.support.waiting import PATIENCE_S


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


#: More than any disk has.
NEVER = 1e9


def test_nothing_is_claimed_below_the_floor_until_there_is_room(rig: Rig) -> None:
    """Although a slot is free; a run goes on and is committed, and what is queued starts when there is room again."""

    def floor_of(gib: float) -> DiskFloor:
        return DiskFloor(rig.config.model_copy(update={"min_free_gib": gib}), lambda: [rig.config.state_dir])

    looked, floor = 0, floor_of(0.0)

    def check() -> None:
        nonlocal looked
        looked += 1
        floor.check()

    rig.check_disk = check
    rig.slots = cpu_slots(2)
    gate, running = rig.begin()
    floor = floor_of(NEVER)
    rig.wait_for(lambda: rig.waiting_for == DISK, "the daemon says what it lacks")
    waiting, before = rig.submit(), looked
    # The claim of the first of two further looks is over when the second one begins.
    rig.wait_for(lambda: looked >= before + 2, "the daemon looks again")
    assert rig.view(waiting).status.state is JobState.QUEUED
    gate.go.set()
    rig.wait_done(running)
    assert rig.view(waiting).status.state is JobState.QUEUED
    floor = floor_of(0.0)
    rig.wait_done(waiting)
    assert rig.daemon is not None
    assert rig.daemon.readiness.ready.wait(PATIENCE_S)


def test_a_daemon_that_starts_on_a_full_disk_is_not_ready(rig: Rig) -> None:
    """It says so, whatever else cannot be made there, and never that it serves; an order to stop ends it as ever."""
    rig.evaluator.gone = "No space left on device"
    rig.check_disk = DiskFloor(rig.config.model_copy(update={"min_free_gib": NEVER}), lambda: ()).check
    rig.start(ready=False)
    rig.wait_for(lambda: rig.daemon is not None and rig.waiting_for == DISK, "it says what it lacks")
    assert rig.daemon is not None
    assert not rig.daemon.readiness.ready.is_set()
    assert rig.stop() == 0


class _Stuck:
    """A container that goes when it is let."""

    def __init__(self) -> None:
        self.id = "0123456789abcdef"
        self.go = threading.Event()

    def close(self) -> None:
        """Refuse until let."""
        if not self.go.is_set():
            raise EngineRefused("device fell off the bus")


def _reasons(rig: Rig) -> list[str | None]:
    """What the list of hosts says of each slot."""
    (host,) = rig.store.hosts()
    return [slot.get("quarantined") for slot in host.slots]


def test_the_others_go_on_and_the_slot_comes_back(rig: Rig) -> None:
    """Out of two slots one is stuck, then both, then none: claims, list of hosts and readiness follow."""
    rig.slots = cpu_slots(2)
    rig.start()
    first, second = _Stuck(), _Stuck()
    keep_out("cpu0", first, EngineRefused("device fell off the bus"), rig.quarantine)
    why = "container 0123456789ab could not be removed: device fell off the bus"
    rig.wait_for(lambda: _reasons(rig) == [why, None], "the list of hosts says which slot is stuck")
    rig.wait_done(*(rig.submit() for _ in range(4)))
    assert {slot for _, _, slot in rig.evaluator.seen} == {"cpu1"}

    keep_out("cpu1", second, EngineRefused("device fell off the bus"), rig.quarantine)
    rig.wait_for(lambda: rig.waiting_for == SLOTS, "the daemon says that it is not ready")
    # No final counts on the host, and a submission that waits for the type says so.
    rig.wait_for(lambda: rig.store.hosts()[0].gpu_types == (), "the list of hosts has no type")
    waits = rig.submit()
    assert rig.view(waits).status.no_host_since is not None
    second.go.set()
    rig.wait_done(waits)
    rig.wait_for(lambda: rig.waiting_for is None, "the daemon is ready again")
    rig.wait_for(lambda: "CPU" in rig.store.hosts()[0].gpu_types, "the type is back")

    first.go.set()
    rig.wait_for(lambda: _reasons(rig) == [None, None], "both slots are back")
    assert rig.stop() == 0
