"""Every shipped GPU type is recognised from what its devices answer, and nothing else is taken for one."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from runner.base.config import Config
from runner.base.device_facts import UnreachableError
from runner.base.gpu_types import Registry, Vendor
from runner.devices import Details, Listing, detect_slots, list_devices, look_at_devices, sysfs
from runner.devices import listing as listing_module
from runner.devices.slots import types_of
from runner.devices.vendors.amd import AmdSmi
from runner.devices.vendors.nvidia import Nvml
from tests.fakes import amd as fake_amd
from tests.fakes import nvml as fake_nvml
from tests.fakes import recordings
from tests.fakes.recordings import AMD, NVIDIA, divided, lost
from tests.support.waiting import PATIENCE_S

REGISTRY = Registry.load()
ALL = {**NVIDIA, **AMD}
STRANGERS = {**recordings.NVIDIA_STRANGERS, **recordings.AMD_STRANGERS}
#: Types that are ranked apart although their devices are the same: never detected, only named.
SAME_DEVICES = {
    "B200": {"B200", "B200_Nebius", "NVIDIA", "B200x8"},
    **{name: {name, f"{name}x4"} for name in ("T4", "L4")},
    **{name: {name, f"{name}x8"} for name in ("A100", "H100", "H200", "MI250", "MI300", "MI355X")},
}

Machine = Callable[..., types.ModuleType]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A host with these devices of both vendors; the bus says nothing of them."""
    monkeypatch.setattr(sysfs, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(sysfs, "DEV", tmp_path / "dev")
    monkeypatch.setattr(sysfs, "PROC", tmp_path / "proc")

    def make(*devices: dict[str, Any], fails: str | None = None) -> fake_nvml.Nvml:
        mine = [device for device in devices if "nvmlDeviceGetUUID" in device]
        others = [device for device in devices if device not in mine]
        nvml = fake_nvml.Nvml(lambda: mine, fails=fails or (None if mine else "LibraryNotFound"))
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setitem(sys.modules, "amdsmi", fake_amd.AmdSmi(lambda: others))
        (tmp_path / "dev").mkdir(exist_ok=True)
        if others:
            (tmp_path / "dev/kfd").touch()
        return nvml

    return make


def test_the_fake_speaks_as_the_library_does() -> None:
    """Constants and error numbers are nvidia-ml-py's, and so are the functions and how many arguments they take."""
    for name, value in fake_nvml.CONSTANTS.items():
        assert getattr(pynvml, name) == value
    for name, value in fake_nvml.ERRORS.items():
        assert issubclass(getattr(pynvml, f"NVMLError_{name}"), pynvml.NVMLError)
        assert pynvml.NVMLError(value).value == value
    questions = {name for _, answers in NVIDIA.values() for name in answers if name.startswith("nvml")}
    own = {name for name in vars(fake_nvml.Nvml) if name.startswith("nvml")}
    for name in questions | own:
        assert callable(getattr(pynvml, name)), name
    for name in own:
        mine = inspect.signature(getattr(fake_nvml.Nvml, name)).parameters
        real = inspect.signature(getattr(pynvml, name)).parameters
        assert len(mine) - 1 == len(real), name


@pytest.mark.parametrize("product", ALL)
def test_every_product_is_of_exactly_one_detected_type(machine: Machine, product: str) -> None:
    """Of all the types, those alone match that are known to share its devices; one of them makes the slot.

    Every shipped type has a recording, or its devices are those of one that has.
    """
    expected, answers = ALL[product]
    machine(answers)
    listing = list_devices()
    assert listing.problems == ()
    (device,) = listing.devices
    found = types_of(REGISTRY, device)
    assert {entry.name for entry in found} == SAME_DEVICES.get(expected, {expected})
    assert [entry.name for entry in found if entry.detect and entry.count == 1] == [expected]
    covered = {name for other, _ in ALL.values() for name in SAME_DEVICES.get(other, {other})}
    assert covered == {entry.name for entry in REGISTRY.all() if entry.vendor is not Vendor.NONE}


@pytest.mark.parametrize("product", STRANGERS)
def test_no_other_product_is_taken_for_one(machine: Machine, product: str) -> None:
    """However similar its name is; whatever it does not report, its state is read."""
    machine(STRANGERS[product])
    (look,), problems = look_at_devices()
    assert types_of(REGISTRY, look.device) == ()
    assert (look.reading is not None, problems) == (True, ())


def test_a_divided_device_is_its_instances_and_no_whole_one(machine: Machine, tmp_path: Path) -> None:
    """MIG instances match only a type that names their profile; a mode without instances is said."""
    machine(divided(NVIDIA["H100 SXM"][1], "1g.10gb", "3g.40gb"))
    listing = list_devices()
    assert [(device.partition, device.uuid[:4]) for device in listing.devices] == [
        ("1g.10gb", "MIG-"),
        ("3g.40gb", "MIG-"),
    ]
    assert [types_of(REGISTRY, device) for device in listing.devices] == [(), ()]
    path = tmp_path / "H100_1G.toml"
    path.write_text("extends = 'H100'\nname = 'H100_1G'\npartition = '1g\\.10gb(\\+me)?'\n", encoding="utf-8")
    mine = Registry.load(files=[path])
    assert [[entry.name for entry in types_of(mine, device)] for device in listing.devices] == [["H100_1G"], []]
    machine(divided(NVIDIA["H100 SXM"][1]))
    listing = list_devices()
    assert listing.devices == ()
    assert "is in MIG mode and has no instances; make some" in listing.problems[0]


def test_an_instance_has_the_clocks_errors_and_events_of_its_device(machine: Machine) -> None:
    """NVML tells none of them of an instance; memory and processes are its own."""
    whole = divided(NVIDIA["H100 SXM"][1], "1g.10gb")
    machine(whole)
    (device,) = list_devices().devices
    library = Nvml.open()
    assert library is not None
    assert (library.details(device).power_limit_w, library.details(device).memory_bytes) == (700.0, 10 << 30)
    assert library.read(device).xids == ()
    whole |= {
        "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
        "nvmlDeviceGetTotalEccErrors": 2,
        "nvmlDeviceGetRemappedRows": [0, 1, 1, 1],
        "nvmlDeviceGetFieldValues": {"230": 1},
        "xids": [79],
    }
    reading = library.read(device)
    assert (reading.used_bytes, reading.throttle, reading.xids) == (15 << 20, ("hw_thermal_slowdown",), (79,))
    assert (reading.uncorrected, reading.remap_pending, reading.remap_failed) == (2, True, True)
    assert (reading.recovery, reading.compute_mode) == ("reset the device", "default")
    assert (library.sample(device).throttle, library.sample(device).sm_clock_mhz) == (("hw_thermal_slowdown",), 345)
    library.close()


def test_partitions_of_an_amd_device_are_no_whole_ones(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MI300X in CPX mode is eight devices of that name; a type may name the mode.

    They share the UUID, their functions are none of the bus, only the first one knows the mode, and each counts the
    memory of all.
    """
    shared = {"amdsmi_get_gpu_device_uuid": "abff74a1-0000-1000-80d1-3c23a9580558"}
    parts = [
        recordings.amd(
            "AMD Instinct MI300X",
            0x74A1,
            192,
            "gfx942",
            number=number,
            **shared,
            amdsmi_get_gpu_device_bdf=f"0000:05:00.{number}",
            amdsmi_get_gpu_compute_partition="N/A" if number else "CPX",
        )
        for number in range(8)
    ]
    machine(*parts)
    local = tmp_path / "sys/bus/pci/devices/0000:05:00.0/local_cpulist"
    local.parent.mkdir(parents=True)
    local.write_text("0-7\n", encoding="ascii")
    devices = list_devices().devices
    assert [device.partition for device in devices] == ["CPX"] * 8
    assert [device.nodes[-1].rpartition("/")[2] for device in devices] == [f"renderD{128 + n}" for n in range(8)]
    assert types_of(REGISTRY, devices[0]) == ()
    path = tmp_path / "MI300_CPX.toml"
    path.write_text("extends = 'MI300'\nname = 'MI300_CPX'\npartition = 'CPX'\n", encoding="utf-8")
    mine = Registry.load(files=[path])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    slots = detect_slots(mine, Config(cpu_slots=0))
    assert [(slot.name, slot.gpu_type) for slot in slots] == [(f"amd{number}", "MI300_CPX") for number in range(8)]
    assert [sysfs.cpus_near(device.pci_address) for device in devices] == [tuple(range(8))] * 8
    parts[3]["*"] = {"error": "AMDSMI_STATUS_NO_DRV"}
    library = AmdSmi.open()
    assert library is not None
    for device in devices[:3] + devices[4:]:
        assert library.read(device).used_bytes is None
        assert library.details(device).memory_bytes is None
    with pytest.raises(UnreachableError, match="is listed any more"):
        library.read(devices[3])
    library.close()


def test_instances_of_one_device_are_slots_of_their_own(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told apart by a number, since they share the device's."""
    machine(divided(NVIDIA["H100 SXM"][1], "1g.10gb", "1g.10gb", "1g.10gb"))
    path = tmp_path / "H100_1G.toml"
    path.write_text("extends = 'H100'\nname = 'H100_1G'\npartition = '1g.10gb'\n", encoding="utf-8")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    found = detect_slots(Registry.load(files=[path]), Config(cpu_slots=0))
    assert [slot.name for slot in found] == ["nvidia0", "nvidia0.2", "nvidia0.3"]
    assert len({slot.devices[0].uuid for slot in found}) == len(found)


@pytest.mark.parametrize("error", ["GpuIsLost", "Unknown", "ResetRequired"])
def test_one_of_eight_that_is_lost_hides_none_of_the_others(machine: Machine, error: str) -> None:
    """It is a problem with its number; seven are left, with the numbers they had."""
    eight = [recordings.nvidia("NVIDIA H100 80GB HBM3", 0x2330, 79, (9, 0), number=number) for number in range(8)]
    eight[3]["*"] = {"error": error}
    machine(*eight)
    listing = list_devices()
    assert [device.index for device in listing.devices] == [0, 1, 2, 4, 5, 6, 7]
    assert listing.problems == (f"nvidia device 3 cannot be used: NVMLError_{error}: {error}",)


def test_vendors_do_not_disturb_each_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are listed; one whose library breaks is a problem, and the other's devices are there."""
    both = (NVIDIA["B200"][1], AMD["MI300X"][1])
    machine(*both)
    assert [device.vendor for device in list_devices().devices] == ["nvidia", "amd"]
    machine(*both, fails="LibRmVersionMismatch")
    listing = list_devices()
    assert [device.vendor for device in listing.devices] == ["amd"]
    assert listing.problems[0].startswith("nvidia devices cannot be listed: NVMLError_LibRmVersionMismatch")
    machine(*both)
    smi = sys.modules["amdsmi"]
    for error in (KeyError("ROCM_HOME"), RuntimeError("no driver"), OSError("libamd_smi.so")):
        monkeypatch.setattr(smi, "amdsmi_init", _raising(error), raising=False)
        listing = list_devices()
        assert [device.vendor for device in listing.devices] == ["nvidia"]
        assert listing.problems == (f"amd devices cannot be listed: {type(error).__name__}: {error}",)


def test_a_driver_that_hangs_hides_what_it_has_not_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device off the bus may hold every later call for ever: those before it and the other vendor's are there."""
    nvml = machine(*(recordings.nvidia("NVIDIA L4", 0x27B8, 23, (8, 9), number=number) for number in range(3)))
    release, real = threading.Event(), nvml.nvmlDeviceGetHandleByIndex

    def hang(index: int) -> object:
        if index == 2:
            release.wait(PATIENCE_S)
        return real(index)

    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByIndex", hang, raising=False)
    monkeypatch.setattr(listing_module, "LIMIT_S", 2.0)
    listing = list_devices()
    release.set()
    assert [device.index for device in listing.devices] == [0, 1]
    assert listing.problems == ("nvidia devices cannot all be listed: the driver does not answer within 2 s",)


def _raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_what_is_known_of_an_nvidia_device(machine: Machine) -> None:
    """Its setting and its state, in the units of the records; what it does not support is None."""
    nvml = machine(NVIDIA["H100 SXM"][1], NVIDIA["T4"][1])
    h100, t4 = list_devices().devices
    library = Nvml.open()
    assert library is not None
    assert library.details(h100) == Details(
        driver="580.95.05",
        toolkit="CUDA 13.0",
        architecture="9.0",
        memory_bytes=79 << 30,
        ecc=True,
        mig=False,
        persistence=True,
        max_sm_clock_mhz=1980,
        max_memory_clock_mhz=2619,
        power_limit_w=700.0,
    )
    assert library.details(t4).mig is None
    reading = library.read(h100)
    assert (reading.used_bytes, reading.processes, reading.uncorrected, reading.remap_pending) == (
        600 << 20,
        (),
        0,
        False,
    )
    assert (reading.sm_clock_mhz, reading.temperature_c, reading.power_w, reading.throttle) == (345, 31, 72.31, ())
    library.close()
    assert vars(nvml)["open"] == 0


def test_what_is_known_of_an_amd_device(machine: Machine) -> None:
    """The same records, from AMD's names and units."""
    machine(AMD["MI300X"][1])
    (device,) = list_devices().devices
    assert device.pci_id == "1002:74a1"
    library = AmdSmi.open()
    assert library is not None
    details = library.details(device)
    assert (details.toolkit, details.architecture, details.memory_bytes) == ("ROCm 7.0.2", "gfx942", 192 << 30)
    assert (details.driver, details.power_limit_w, details.max_sm_clock_mhz) == ("6.14.14", 750.0, 2100)
    reading = library.read(device)
    assert (reading.used_bytes, reading.processes, reading.uncorrected) == (283 << 20, (), 0)
    assert (reading.remap_pending, reading.remap_failed, reading.throttle, reading.power_w) == (False, False, (), 138.0)
    # Another listing comes and goes, and does not close it.
    assert len(list_devices().devices) == 1
    assert library.read(device) == reading
    library.close()
    assert vars(sys.modules["amdsmi"])["open"] == 0


def test_instances_and_partitions_come_with_the_nodes_that_open_them(machine: Machine, tmp_path: Path) -> None:
    """An instance of NVIDIA's needs two capabilities beside its device's nodes; a partition of AMD's has its own."""
    device = divided(NVIDIA["H100 SXM"][1], "1g.10gb", "1g.10gb")
    for number, instance in enumerate(device["instances"]):
        instance |= {"nvmlDeviceGetGpuInstanceId": 7 + number, "nvmlDeviceGetComputeInstanceId": 0}
    part = recordings.amd("AMD Instinct MI300X", 0x74A1, 24, "gfx942", number=3, amdsmi_get_gpu_compute_partition="CPX")
    machine(device, part)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    for path, number in (("gi7/access", 66), ("gi7/ci0/access", 67), ("gi8/access", 75), ("gi8/ci0/access", 76)):
        access = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig" / path
        access.parent.mkdir(parents=True, exist_ok=True)
        access.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n", encoding="ascii")
    nodes = [tuple(node.removeprefix(f"{tmp_path}/dev/") for node in device.nodes) for device in list_devices().devices]
    assert nodes == [
        ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"),
        ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap75", "nvidia-caps/nvidia-cap76"),
        ("kfd", "dri/renderD131"),
    ]


def test_nothing_at_all_is_a_normal_host(machine: Machine) -> None:
    """No devices, no problems."""
    machine()
    assert list_devices() == Listing(devices=(), problems=())
    machine(lost(NVIDIA["L4"][1]))
    assert list_devices().devices == ()
