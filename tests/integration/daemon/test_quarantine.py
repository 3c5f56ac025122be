"""A slot whose container does not go: the daemon goes on with the others, says so everywhere, and takes it back."""

from __future__ import annotations

import threading

from runner.daemon.monitoring.readiness import SLOTS
from runner.evaluation.leftovers import keep_out
from sandbox.errors import EngineRefused
from tests.integration.daemon.rig import Rig, cpu_slots


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


def test_a_type_whose_slots_are_out_of_use_has_no_host(rig: Rig) -> None:
    """A submission that waits for it says so, and no final counts on the host, until a slot is back."""
    rig.start()
    stuck = _Stuck()
    keep_out("cpu0", stuck, EngineRefused("device fell off the bus"), rig.quarantine)
    rig.wait_for(lambda: rig.store.hosts()[0].gpu_types == (), "the list of hosts has no type")
    waits = rig.submit()
    assert rig.view(waits).status.no_host_since is not None
    stuck.go.set()
    rig.wait_done(waits)
    rig.wait_for(lambda: "CPU" in rig.store.hosts()[0].gpu_types, "the type is back")


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
    waits = rig.submit()
    second.go.set()
    rig.wait_done(waits)
    rig.wait_for(lambda: rig.waiting_for is None, "the daemon is ready again")

    first.go.set()
    rig.wait_for(lambda: _reasons(rig) == [None, None], "both slots are back")
    assert rig.stop() == 0
