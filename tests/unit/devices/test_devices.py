"""Slots from devices and cores; the vendor libraries are replaced at the import boundary."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.base.config import Config, SlotConfig
from runner.base.errors import ConfigError
from runner.base.gpu_types import Registry
from runner.devices import detect_slots, list_devices, sysfs
from tests.fakes import recordings
from tests.fakes.amd import AmdSmi
from tests.fakes.nvml import Nvml

Host = Callable[..., Nvml]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    """A host with these NVIDIA devices and so many cores; no AMD driver; an empty sysfs."""

    def _host(*names: str, cores: int = 8, fails: str | None = None) -> Nvml:
        nvml = Nvml(lambda: [_numbered(name, number) for number, name in enumerate(names)], fails=fails)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
        monkeypatch.setattr(sysfs, "SYSFS", tmp_path / "sys")
        monkeypatch.setattr(sysfs, "DEV", tmp_path / "dev")
        return nvml

    return _host


def _numbered(name: str, number: int) -> recordings.Answers:
    """A device whose UUID is its index; its minor number is not: drivers number devices otherwise."""
    own: dict[str, Any] = {"nvmlDeviceGetUUID": f"GPU-{number}", "nvmlDeviceGetMinorNumber": number + 4}
    return recordings.nvidia(name, 0x27B8, 23, (8, 9), number=number, **own)


@pytest.fixture
def amd(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AmdSmi:
    """Two AMD devices on a host without NVIDIA driver; an old library says nothing of their render nodes."""
    host(fails="LibraryNotFound")
    devices = [
        {
            "amdsmi_get_gpu_device_uuid": f"uuid-{number}",
            "amdsmi_get_gpu_device_bdf": f"0000:C{number}:00.0",
            "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
        }
        for number in (1, 2)
    ]
    smi = AmdSmi(lambda: devices)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    for number, address in enumerate(("0000:c1:00.0", "0000:c2:00.0")):
        card = tmp_path / "sys/bus/pci/devices" / address
        (card / f"drm/renderD{128 + number}").mkdir(parents=True)
        (card / "drm/card0").mkdir()
        (card / "numa_node").write_text(f"{number}\n", encoding="ascii")
    return smi


REGISTRY = Registry.load()


def shape(config: Config) -> list[tuple[str, str, list[str], list[int]]]:
    """Name, type, device UUIDs and cores of every slot."""
    return [
        (slot.name, slot.gpu_type, [device.uuid for device in slot.devices], list(slot.cpus))
        for slot in detect_slots(REGISTRY, config)
    ]


@pytest.mark.parametrize(
    ("cores", "config", "slots"),
    [
        # Half as many slots as cores, and one at least.
        (5, Config(), [[0, 1], [2, 3]]),
        (1, Config(), [[0]]),
        # A number is taken as it is, and cores are shared fairly when they are scarce.
        (3, Config(cpu_slots=1), [[0, 1]]),
        (3, Config(cpu_slots=2), [[0], [1, 2]]),
        (4, Config(reserve_cpus=2), [[2, 3]]),
    ],
)
def test_a_host_without_accelerator_gets_cpu_slots_of_two_cores(
    host: Host, cores: int, config: Config, slots: list[list[int]]
) -> None:
    """No driver is a normal host. `reserve_cpus` keeps the lowest-numbered cores."""
    host(cores=cores, fails="LibraryNotFound")
    assert list_devices().problems == ()
    assert shape(config) == [(f"cpu{number}", "CPU", [], cpus) for number, cpus in enumerate(slots)]


@pytest.mark.parametrize(
    ("cores", "config", "message"),
    [
        (3, Config(cpu_slots=4), "4 slots share 3 cores"),
        (4, Config(reserve_cpus=4), "reserve_cpus=4, but there are 4 cores"),
        (8, Config(cpu_slots=0), "nothing to run jobs on"),
    ],
)
def test_a_host_that_cannot_have_its_slots_is_an_error(host: Host, cores: int, config: Config, message: str) -> None:
    """A daemon without slots would look healthy and do nothing."""
    host(cores=cores)
    with pytest.raises(ConfigError, match=message):
        detect_slots(REGISTRY, config)


def test_each_known_device_becomes_a_slot_of_its_type(host: Host, tmp_path: Path) -> None:
    """By product name; no CPU slots beside them unless asked for; the library is closed again.

    An unknown card costs no other card its slot. Which board one of two types serves is the operator's decision.
    """
    nvml = host("NVIDIA H100 80GB HBM3", "NVIDIA B200", cores=8)
    assert shape(Config()) == [
        ("nvidia0", "H100", ["GPU-0"], [0, 1, 2, 3]),
        ("nvidia1", "B200", ["GPU-1"], [4, 5, 6, 7]),
    ]
    assert [slot[0] for slot in shape(Config(cpu_slots=1))] == ["nvidia0", "nvidia1", "cpu0"]
    assert nvml.open == 0
    host("NVIDIA GeForce RTX 5090", "NVIDIA L4")
    assert [slot[:2] for slot in shape(Config())] == [("nvidia1", "L4")]
    (tmp_path / "x.toml").write_text('name = "X"\nvendor = "nvidia"\ndevice_names = ["NVIDIA L4"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="matches GPU types L4, X; expected one: set detect = false"):
        detect_slots(Registry.load(tmp_path), Config())


@pytest.mark.parametrize("config", [Config(), Config(cpu_slots=0)])
def test_a_host_whose_driver_is_broken_does_not_serve_as_another_machine(host: Host, config: Config) -> None:
    """The listing says what went wrong, and so does the daemon, which starts when the driver does.

    Slots of the CPU that were asked for go on.
    """
    host("NVIDIA L4", fails="DriverNotLoaded")
    listing = list_devices()
    (problem,) = listing.problems
    assert listing.devices == ()
    assert problem.startswith("nvidia devices cannot be listed: NVMLError_DriverNotLoaded: DriverNotLoaded")
    assert [slot[1] for slot in shape(Config(cpu_slots=1))] == ["CPU"]
    with pytest.raises(ConfigError, match=r"nothing to run jobs on: .*; nvidia devices cannot be listed: NVMLError"):
        detect_slots(REGISTRY, config)
    host("NVIDIA L4")
    assert [slot[1] for slot in shape(config)] == ["L4"]


def test_explicit_slots_are_taken_as_they_are(host: Host) -> None:
    """By index, UUID or PCI address; multi-device types; named cores first, the rest shared."""
    host("NVIDIA L4", "NVIDIA L4", "NVIDIA L4", "NVIDIA L4", "NVIDIA B200", cores=8)
    config = Config(
        slots=(
            SlotConfig(gpu_type="L4x4", devices=("0", "GPU-1", "0000:1c:00.0", "3"), cpus=(6, 7)),
            SlotConfig(gpu_type="B200_Nebius", devices=("4",)),
            SlotConfig(gpu_type="CPU"),
        )
    )
    assert shape(config) == [
        ("nvidia0+1+2+3", "L4x4", ["GPU-0", "GPU-1", "GPU-2", "GPU-3"], [6, 7]),
        ("nvidia4", "B200_Nebius", ["GPU-4"], [0, 1, 2]),
        ("cpu2", "CPU", [], [3, 4]),
    ]


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([{"gpu_type": "H10"}], r"slots\[0\]: GPU type 'H10' is not known.*'H100'"),
        ([{"gpu_type": "L4"}], r"slots\[0\]: 0 devices, expected 1 for GPU type 'L4'"),
        ([{"gpu_type": "CPU", "devices": ["0"]}], r"slots\[0\]: 1 devices, expected 0"),
        ([{"gpu_type": "L4", "devices": ["7"]}], r"no nvidia device '7' on this host, found: 0 = GPU-0 \(NVIDIA L4\)"),
        ([{"gpu_type": "H100", "devices": ["0"]}], r"device GPU-0 is a 'NVIDIA L4', expected one of NVIDIA H100"),
        ([{"gpu_type": "MI300", "devices": ["0"]}], r"no amd device '0' on this host, found: none"),
        ([{"gpu_type": "L4", "devices": ["0"]}] * 2, "device GPU-0 is in slots nvidia0 and nvidia0"),
        (
            [{"gpu_type": "L4x4", "devices": [0, 1, 2, 3]}, {"gpu_type": "L4", "devices": [3]}],
            r"device GPU-3 is in slots nvidia0\+1\+2\+3 and nvidia3, expected one",
        ),
        (
            [{"gpu_type": "L4", "devices": [0], "cpus": [1]}, {"gpu_type": "L4", "devices": [1], "cpus": [1]}],
            "core 1 is in slots nvidia0 and nvidia1",
        ),
        ([{"gpu_type": "CPU", "cpus": [1]}, {"gpu_type": "CPU", "cpus": [1]}], "core 1 is in slots cpu0 and cpu1"),
        ([{"gpu_type": "CPU", "cpus": [99]}], "core 99 is not available"),
    ],
)
def test_a_wrong_slot_is_refused(host: Host, slots: list[dict[str, Any]], message: str) -> None:
    """Each mistake says which slot, what is there and what was expected."""
    host(*["NVIDIA L4"] * 6)
    config = Config(slots=tuple(SlotConfig(**slot) for slot in slots))
    with pytest.raises(ConfigError, match=message):
        detect_slots(REGISTRY, config)


@pytest.mark.parametrize("lost", ["7", "GPU-7", "0000:7f:00.0"])
@pytest.mark.parametrize("place", range(4))
def test_a_lost_device_costs_its_own_slot_alone(host: Host, lost: str, place: int) -> None:
    """However the list names it; a check names it. Where the driver lists no device, the daemon does not start."""
    host(*["NVIDIA L4"] * 6)
    listed = [("L4", ["0"]), ("L4", ["1"]), ("L4x4", ["2", "3", "4", "5"]), ("CPU", [])]
    listed.insert(place, ("L4", [lost]) if place % 2 else ("L4x4", ["2", "3", "4", lost]))
    given = tuple(SlotConfig(gpu_type=name, devices=tuple(devices)) for name, devices in listed)
    slots = detect_slots(REGISTRY, Config(slots=given), complete=False)
    assert [(slot.gpu_type, len(slot.devices)) for slot in slots] == [("L4", 1), ("L4", 1), ("L4x4", 4), ("CPU", 0)]
    with pytest.raises(ConfigError, match=rf"slots\[{place}\]: no nvidia device '{lost}' on this host, found: 0 = "):
        detect_slots(REGISTRY, Config(slots=given))
    with pytest.raises(ConfigError, match="nothing to run jobs on"):
        detect_slots(REGISTRY, Config(slots=given[place : place + 1]), complete=False)
    for fails in (None, "DriverNotLoaded"):
        host(fails=fails)
        with pytest.raises(ConfigError, match=r"no nvidia device '0' on this host, found: none"):
            detect_slots(REGISTRY, Config(slots=(SlotConfig(gpu_type="L4", devices=("0",)),)), complete=False)


def _nodes(tmp_path: Path, *cpus: str) -> Path:
    """The host's NUMA nodes, with these cores."""
    nodes = tmp_path / "sys/devices/system/node"
    for number, listed in enumerate(cpus):
        (nodes / f"node{number}").mkdir(parents=True)
        (nodes / f"node{number}/cpulist").write_text(f"{listed}\n", encoding="ascii")
    return nodes


def test_cores_come_from_the_devices_numa_node(host: Host, tmp_path: Path) -> None:
    """A device on node 1 gets the cores of node 1 although it comes first."""
    host("NVIDIA L4", "NVIDIA L4", cores=8)
    _nodes(tmp_path, "0-3", "4-5,6-7")
    for address, node in (("0000:1a:00.0", 1), ("0000:1b:00.0", 0)):
        directory = tmp_path / "sys/bus/pci/devices" / address
        directory.mkdir(parents=True)
        (directory / "numa_node").write_text(f"{node}\n", encoding="ascii")
    found = detect_slots(REGISTRY, Config())
    assert [(slot.numa_node, slot.cpus) for slot in found] == [(1, (4, 5, 6, 7)), (0, (0, 1, 2, 3))]
    # Where the bus knows better than the node, it counts.
    (tmp_path / "sys/bus/pci/devices/0000:1a:00.0/local_cpulist").write_text("0,2,4,6\n", encoding="ascii")
    assert [slot.cpus for slot in detect_slots(REGISTRY, Config())] == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_cores_of_one_node_bring_its_memory_along(host: Host, tmp_path: Path) -> None:
    """Slots without device: memory of the node their cores are of; none where they are of two, or there is one only."""
    host(cores=6)
    nodes = _nodes(tmp_path, "0-2", "3-5")
    found = detect_slots(REGISTRY, Config(cpu_slots=3))
    assert [(slot.cpus, slot.numa_node) for slot in found] == [((0, 1), 0), ((2, 3), None), ((4, 5), 1)]
    shutil.rmtree(nodes / "node1")
    assert [slot.numa_node for slot in detect_slots(REGISTRY, Config(cpu_slots=3))] == [None, None, None]


def test_nvidia_devices_come_with_the_nodes_of_their_minor_numbers(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host's root file system gets plain nodes: the device's own, by its minor number, and the driver's helpers."""
    host("NVIDIA L4", "NVIDIA L4")
    monkeypatch.setattr(sysfs, "DEV", tmp_path)
    for name in ("nvidia4", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / name).touch(mode=0o666)
        (tmp_path / name).chmod(0o666)
    found = [slot.devices[0] for slot in detect_slots(REGISTRY, Config())]
    assert [device.nodes for device in found] == [
        tuple(f"{tmp_path}/{name}" for name in (f"nvidia{minor}", "nvidiactl", "nvidia-uvm")) for minor in (4, 5)
    ]
    assert [device.groups for device in found] == [(), ()]


@pytest.mark.usefixtures("amd")
def test_nodes_that_a_group_alone_may_open_bring_the_group_along(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """AMD's nodes belong to the group `render`; without its number the worker could not open what it was leased."""
    monkeypatch.setattr(sysfs, "DEV", tmp_path)
    (tmp_path / "dri").mkdir()
    real = Path.stat
    for name, mode in (("kfd", 0o660), ("dri/renderD128", 0o660), ("dri/renderD129", 0o666)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)

    def stat_of(path: Path, **how: Any) -> os.stat_result:  # noqa: ANN401 - the real one's
        found = list(real(path, **how))
        if path.name in ("kfd", "renderD128", "renderD129"):
            # Giving a file away needs root, and which groups there are is the machine's.
            found[5] = {"kfd": 993, "renderD128": 992, "renderD129": 991}[path.name]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", stat_of)
    assert [slot.devices[0].groups for slot in detect_slots(REGISTRY, Config())] == [(992, 993), (993,)]


def test_amd_devices_come_with_their_nodes(amd: AmdSmi, tmp_path: Path) -> None:
    """One slot each, with /dev/kfd and exactly its own render node."""
    found = detect_slots(REGISTRY, Config())
    assert [(slot.name, slot.gpu_type, slot.numa_node) for slot in found] == [
        ("amd0", "MI300", 0),
        ("amd1", "MI300", 1),
    ]
    assert [slot.devices[0].nodes for slot in found] == [
        (f"{tmp_path}/dev/kfd", f"{tmp_path}/dev/dri/renderD128"),
        (f"{tmp_path}/dev/kfd", f"{tmp_path}/dev/dri/renderD129"),
    ]
    assert amd.open == 0


@pytest.mark.usefixtures("amd")
def test_amd_bindings_that_do_not_import_are_a_problem_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their import raises KeyError on some installations."""
    monkeypatch.delitem(sys.modules, "amdsmi")
    (tmp_path / "amdsmi.py").write_text("raise KeyError('ROCM_HOME')\n", encoding="ascii")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list_devices().problems == ("amd devices cannot be listed: KeyError: 'ROCM_HOME'",)
