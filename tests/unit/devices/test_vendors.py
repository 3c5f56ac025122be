"""What `runner.devices` asks by vendor is one module: a further one is found there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import CLOCK_REASONS, ClockPolicy, Vendor
from runner.base.model import Device, Slot
from runner.devices import Reading, list_devices, vendors
from runner.devices.gate import HealthGate
from runner.devices.health import clock_deviations
from runner.devices.quarantine import Quarantine
from runner.devices.vendors import SUPPORTED, supported
from runner.evaluation.container_spec import cdi_name
from tests.unit import samples

#: The module of a further vendor.
_FILE = """
import re

from runner.base.device_facts import Details, Reading
from runner.devices.vendors import Support
from runner.base.model import Device

DEVICE = Device(uuid="G-1", name="Grid 1", vendor="grid", index=0, nodes=("/dev/grid0",))


class Library:
    def close(self): ...
    def devices(self, problem): return iter([DEVICE])
    def details(self, device): return Details(driver="1.0")
    def read(self, device): return Reading(used_bytes=0)
    def sample(self, device): return Reading()


SUPPORT = Support(
    open=Library,
    cdi_kind="grid.example/gpu",
    own_node=re.compile(r"/dev/grid\\d+"),
    instances_share_node=False,
    needed_nodes=("gridctl",),
    nodes_remedy="load the driver",
    clock_is_limit=True,
)
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device of a vendor whose file has been added."""
    (tmp_path / "grid.py").write_text(_FILE, encoding="utf-8")
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "runner.devices.vendors.grid", raising=False)
    found = supported(vendors.__path__)
    assert set(found) == {*SUPPORTED, "grid"}
    monkeypatch.setitem(SUPPORTED, "grid", found["grid"])
    (device,) = (device for device in list_devices().devices if device.vendor == "grid")
    return device


def test_a_further_vendor_is_listed_watched_named_and_judged(grid: Device) -> None:
    """Its devices are found and inspected, containers ask for them by its CDI names, its clocks are upper limits."""
    slot = Slot(name="grid0", gpu_type="GRID", devices=(grid,), cpus=(0,))
    gpu = replace(samples.H100, vendor="grid", clocks=ClockPolicy(sm_mhz=1000))  # type: ignore[arg-type]  # no member
    gate = HealthGate(Quarantine(), type_of=lambda _: gpu)
    try:
        assert gate.inspect(slot).health.fit
    finally:
        gate.close()
    assert cdi_name(grid, {"grid.example/gpu=7": ("/dev/grid0", "/dev/gridctl")}) == "grid.example/gpu=7"
    assert clock_deviations(Reading(sm_clock_mhz=500), gpu) == ()
    assert clock_deviations(Reading(sm_clock_mhz=1500), gpu) == ("sm_clock_off",)


def test_every_vendor_that_a_gpu_type_can_name_is_supported() -> None:
    """One that is added to the enumeration alone fails here, not with a KeyError on a host."""
    with_devices = {vendor.value for vendor in Vendor if vendor is not Vendor.NONE}
    assert set(SUPPORTED) == with_devices
    assert set(CLOCK_REASONS) == set(Vendor)
