"""A host of four devices for tests: one slot around two around four, and one slot of a CPU beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.base.model import Device, Job, Slot
from runner.daemon.leases import Lease
from runner.gpu_types import GpuType, Registry, Vendor
from tests.unit import samples

REGISTRY = Registry(
    [
        GpuType(name="One", vendor=Vendor.NVIDIA, aliases=("Single",)),
        GpuType(name="Two", vendor=Vendor.NVIDIA, count=2),
        GpuType(name="Four", vendor=Vendor.NVIDIA, count=4, aliases=("Quad",)),
        GpuType(name="CPU", vendor=Vendor.NONE),
    ]
)


@dataclass
class Worker:
    """A slot that is busy when the test says so."""

    slot: Slot
    busy: bool = False

    def give(self, _lease: Lease) -> None:
        """Be busy."""
        self.busy = True


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
        slot("left", "Two", 0, 1),
        slot("right", "Two", 2, 3),
        *(slot(f"one{number}", "One", number) for number in range(4)),
        slot("cpu", "CPU", 8),
    ]
    return {each.name: Worker(slot=each) for each in slots}


def job(gpu_type: str, *, avoid_slot: str | None = None, job_id: int = 1) -> Job:
    """Some job."""
    return replace(samples.job(gpu_type=gpu_type), id=job_id, attempt=1, avoid_slot=avoid_slot)
