"""Too little room on a disk: the daemon claims nothing, says why, and goes on by itself."""

from __future__ import annotations

from runner.base.disk import DiskFloor
from runner.base.model import JobState
from runner.daemon.monitoring.readiness import DISK
from tests.integration.daemon.rig import Rig, cpu_slots
from tests.support.waiting import PATIENCE_S

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
