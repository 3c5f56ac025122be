"""Clocks are locked as demanded and given back, on devices whose libraries are replaced at the import boundary."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.base.device_facts import RefusedError
from runner.devices import list_devices, sysfs
from runner.devices.locking import set_clocks
from runner.devices.vendors.nvidia import Nvml
from runner.gpu_types import ClockPolicy
from tests.fakes.amd import AmdSmi as FakeAmdSmi
from tests.fakes.nvml import Nvml as FakeNvml
from tests.fakes.recordings import AMD, Answers, divided, lost, nvidia

A100 = ClockPolicy(sm_mhz=1410, memory_mhz=1593)
SM, MEMORY = 1, 2

Machine = Callable[..., tuple[FakeNvml, FakeAmdSmi]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A host with these NVIDIA devices, and AMD ones."""
    monkeypatch.setattr(sysfs, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(sysfs, "DEV", tmp_path / "dev")

    def make(*mine: Answers, amd: tuple[Answers, ...] = ()) -> tuple[FakeNvml, FakeAmdSmi]:
        libraries = FakeNvml(lambda: mine), FakeAmdSmi(lambda: amd)
        monkeypatch.setitem(sys.modules, "pynvml", libraries[0])
        monkeypatch.setitem(sys.modules, "amdsmi", libraries[1])
        (tmp_path / "dev").mkdir(exist_ok=True)
        if amd:
            (tmp_path / "dev/kfd").touch()
        return libraries

    return make


def a100(number: int, **more: Any) -> Answers:  # noqa: ANN401 - of any kind
    """One of several devices."""
    return nvidia("NVIDIA A100-SXM4-80GB", 0x20B2, 80, (8, 0), number=number, **more)


def test_clocks_are_locked_and_given_back(machine: Machine) -> None:
    """Of devices of both vendors; one of which nothing is demanded is left alone, and its own lock stays."""
    nvml, amdsmi = machine(a100(0), a100(1), a100(2), amd=(AMD["MI300X"][1],))
    first, second, _, other = [device.uuid for device in list_devices().devices]
    nvml.locked[2, SM] = 1095
    demands = {first: A100, second: ClockPolicy(sm_mhz=1095), other: ClockPolicy(sm_mhz=1900)}
    assert set_clocks(demands, lock=True) == dict.fromkeys(demands)
    assert nvml.locked == {(0, SM): 1410, (0, MEMORY): 1593, (1, SM): 1095, (2, SM): 1095}
    assert amdsmi.bounds == {0: 1900}
    assert set_clocks(demands, lock=False) == dict.fromkeys(demands)
    assert (nvml.locked, amdsmi.bounds) == ({(2, SM): 1095}, {})
    assert (nvml.open, amdsmi.open) == (0, 0)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("NoPermission", "SM clock at 1410 MHz: the driver allows it to root alone (NVMLError_NoPermission: "),
        ("NotSupported", "SM clock at 1410 MHz: the device or its driver cannot (NVMLError_NotSupported: "),
        ("InvalidArgument", "SM clock at 1410 MHz: the device has no such clock (NVMLError_InvalidArgument: "),
        ("Unknown", "SM clock at 1410 MHz: NVMLError_Unknown: Unknown"),
        ("GpuIsLost", "NVMLError_GpuIsLost: GpuIsLost"),
    ],
)
def test_what_one_device_refuses_is_said_and_the_others_are_locked(machine: Machine, error: str, why: str) -> None:
    """In a line with the clock and the reason."""
    nvml, _ = machine(a100(0, nvmlDeviceSetGpuLockedClocks={"error": error}), a100(1))
    first, second = [device.uuid for device in list_devices().devices]
    found = set_clocks({first: A100, second: A100}, lock=True)
    assert (found[first] or "").startswith(why)
    assert found[second] is None
    assert nvml.locked == {(1, SM): 1410, (1, MEMORY): 1593}


def test_a_device_without_a_memory_clock_to_lock_says_so(machine: Machine) -> None:
    """Before Ampere there is none."""
    machine(nvidia("Tesla T4", 0x1EB8, 15, (7, 5)))
    (device,) = list_devices().devices
    found = set_clocks({device.uuid: ClockPolicy(memory_mhz=5000)}, lock=True)
    assert (found[device.uuid] or "").startswith("memory clock at 5000 MHz: the device or its driver cannot")


def test_what_amds_library_refuses_is_one_line(machine: Machine) -> None:
    """Its own message has several."""
    refusal = {"error": "Error code:\n\t10 | AMDSMI_STATUS_NO_PERM - Permission Denied"}
    both = {"amdsmi_set_gpu_perf_determinism_mode": refusal, "amdsmi_set_gpu_perf_level": refusal}
    machine(amd=({**AMD["MI300X"][1], **both},))
    (device,) = list_devices().devices
    said = "AmdSmiLibraryException: Error code: 10 | AMDSMI_STATUS_NO_PERM - Permission Denied"
    demands = {device.uuid: ClockPolicy(sm_mhz=1900)}
    assert set_clocks(demands, lock=True) == {device.uuid: f"at most 1900 MHz: {said}"}
    assert set_clocks(demands, lock=False) == {device.uuid: f"performance level auto: {said}"}


def test_a_device_that_is_gone_is_not_taken_for_locked(machine: Machine) -> None:
    """It was there when it was asked what it is."""
    machine(a100(0))
    (device,) = list_devices().devices
    machine(lost(a100(0)))
    assert set_clocks({device.uuid: A100}, lock=True) == {device.uuid: "it is not listed any more"}


def test_an_instance_has_no_clocks_of_its_own(machine: Machine) -> None:
    """Others compute on the same device."""
    machine(divided(a100(0), "1g.10gb"))
    (device,) = list_devices().devices
    library = Nvml.open()
    assert library is not None
    for change in (library.lock, library.release):
        with pytest.raises(RefusedError, match="those of the whole device"):
            change(device, A100)
    library.close()
