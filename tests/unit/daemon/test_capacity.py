"""What a host asks for, and which slot gets what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast
from unittest.mock import Mock

import pytest

from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.model import Device, Job, Slot
from runner.daemon.capacity import Capacity
from runner.daemon.claim_turn import ClaimTurn
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.slot import SlotWorker
from tests.unit import samples

REGISTRY = Registry(
    [
        GpuType(name="One", vendor=Vendor.NVIDIA, aliases=("Single",)),
        GpuType(name="Four", vendor=Vendor.NVIDIA, count=4, aliases=("Quad",)),
        GpuType(name="CPU", vendor=Vendor.NONE),
    ]
)


@dataclass
class Worker:
    """A slot that is busy when the test says so."""

    slot: Slot
    busy: bool = False
    given: int = 0

    def give(self, _lease: object) -> None:
        """Take a job."""
        self.given += 1


def slot(name: str, gpu_type: str, *numbers: int) -> Slot:
    """A slot of these devices, with a core for each."""
    devices = tuple(
        Device(uuid=f"GPU-{number}", name="some", vendor="nvidia", index=number) for number in numbers if number < 8
    )
    return Slot(name=name, gpu_type=gpu_type, devices=devices, cpus=numbers)


def workers() -> dict[str, Worker]:
    """The slots by name."""
    slots = [
        slot("four", "Four", 0, 1, 2, 3),
        *(slot(f"one{number}", "One", 4 + number) for number in range(3)),
        slot("cpu", "CPU", 8),
    ]
    return {each.name: Worker(slot=each) for each in slots}


def job(gpu_type: str, *, avoid_slot: str | None = None, job_id: int = 1) -> Job:
    """Some job."""
    return samples.job(gpu_type=gpu_type, id=job_id, avoid_slot=avoid_slot)


def capacity_of(*host: Worker, quarantined: Callable[[], Collection[str]] = frozenset) -> Capacity:
    """The slots of a host."""
    return Capacity(cast("Sequence[SlotWorker]", host), REGISTRY, quarantined=quarantined)


def free(capacity: Capacity) -> set[str]:
    """Names of the slots that could start a job."""
    return {worker.slot.name for worker in capacity.free()}


def placed(capacity: Capacity, *jobs: Job) -> dict[int, str]:
    """Which slot each job got, all at once."""
    return {each.id: worker.slot.name for each, worker in capacity.assign(jobs, capacity.free())}


def test_offers_name_every_alias_of_what_is_free() -> None:
    """As many as are free, of each name. A slot whose container does not go is not offered; the others go on."""
    host, stuck = workers(), set[str]()
    capacity = capacity_of(*host.values(), quarantined=lambda: stuck)
    assert free(capacity) == set(host)
    assert capacity.request(capacity.free()) == {"Four": 1, "Quad": 1, "One": 3, "Single": 3, "CPU": 1}
    host["one0"].busy = host["four"].busy = True
    assert free(capacity) == {"one1", "one2", "cpu"}
    assert capacity.request(capacity.free()) == {"One": 2, "Single": 2, "CPU": 1}
    assert capacity.busy_types() == {"Four", "Quad"}
    host["one0"].busy = host["four"].busy = False
    stuck |= {"one0"}
    # A busy slot is used; what an alias's job may use counts under the alias, too.
    others = {"Four": 1, "Quad": 1, "One": 2, "Single": 2, "CPU": 1}
    assert (capacity.request(capacity.free()), capacity.usable()) == (others, others)
    stuck |= set(host)
    assert not capacity.usable()
    stuck.clear()
    assert free(capacity) == set(host)


def test_a_job_that_failed_on_a_slot_gets_another() -> None:
    """It chooses first; if there is no other, it takes the same again."""
    host = workers()
    capacity = capacity_of(host["one0"], host["one1"])
    assert placed(capacity, job("One", job_id=1), job("One", job_id=2, avoid_slot="one0")) == {2: "one1", 1: "one0"}
    lonely = capacity_of(Worker(slot=host["one0"].slot))
    assert placed(lonely, job("One", avoid_slot="one0")) == {1: "one0"}


@pytest.mark.parametrize(
    ("before", "after"),
    [({"one0"}, set()), (set(), {"one0", "one1"})],
    ids=["one comes free", "all are quarantined"],
)
def test_what_changes_while_a_claim_is_answered_changes_no_job_s_slot(before: set[str], after: set[str]) -> None:
    """Jobs go to the slots that they were asked for; a quarantine that came meanwhile fails the attempt there."""
    host = workers()
    asked = [host["one0"], host["one1"]]
    sets = iter([before])
    capacity = capacity_of(*asked, quarantined=lambda: next(sets, after))
    keeper, store = Mock(lease_of=Mock(return_value=None)), Mock()
    store.claim.return_value = Mock(jobs=(job("One"),), unreadable=(), draining=True)
    turn = ClaimTurn(Mock(), capacity=capacity, recovery=Mock(), keeper=keeper, publisher=Mock(), instance="i")
    turn.claim(store, ShutdownControl(), able=True)
    assert [worker.given for worker in asked] == ([0, 1] if before else [1, 0])
