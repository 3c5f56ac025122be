"""What this host can run: finds accelerators and processor cores and divides them into slots.

Owns the only calls of NVML and AMD SMI. Both are optional and neither may take the daemon down: a host without a driver
is a normal host. Must not watch devices over time or touch their settings. Called once at start-up and by the command
line's device listing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from runner.config import Config, SlotConfig
from runner.errors import ConfigError, NotFoundError
from runner.gpus import GpuType, Registry, Vendor
from runner.logs import get_logger
from runner.model import Device, Slot

_log = get_logger(__name__)

_SYSFS: Final = Path("/sys")
_DEV: Final = Path("/dev")
_KFD: Final = Path("/dev/kfd")
#: Judge and worker of one run hand over to each other all the time: with one core each they do not wait for the other.
CPUS_PER_CPU_SLOT: Final = 2


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The accelerators of this host, and what went wrong while looking for them (sentences for the operator)."""

    devices: tuple[Device, ...]
    problems: tuple[str, ...]


def list_devices() -> Listing:
    """Every accelerator that a vendor library reports. Never raises: what fails becomes a problem."""
    devices: list[Device] = []
    problems: list[str] = []
    for vendor, find in ((Vendor.NVIDIA, _nvidia), (Vendor.AMD, _amd)):
        # A vendor's library is foreign code around a driver: whatever it raises must not stop a host that could do
        # without it, and there is no type that covers what the AMD bindings raise.
        try:
            devices += find()
        except Exception as error:  # noqa: BLE001 - see above
            problems.append(f"{vendor} devices cannot be listed: {type(error).__name__}: {error}")
    return Listing(devices=tuple(devices), problems=tuple(problems))


def detect_slots(registry: Registry, config: Config) -> tuple[Slot, ...]:
    """The slots of this host as the configuration asks for them.

    With `slots = "auto"` every device whose name matches exactly one detectable single-device type becomes a slot, and
    `cpu_slots` adds slots of the CPU type. A list in `slots` is taken as it is.

    Slots may share devices if one's lie within the other's, e.g. eight of one and one of eight; they never run at the
    same time.

    Raises:
        ConfigError: a slot names an unknown type or device, shares a device or core in another way, has the wrong
            number of devices, there are more slots than cores, or nothing at all can be run here.
    """
    listing = list_devices()
    for problem in listing.problems:
        _log.warning(problem)
    cpus = sorted(os.sched_getaffinity(0))
    if config.reserve_cpus >= len(cpus):
        raise ConfigError(f"reserve_cpus={config.reserve_cpus}, but there are {len(cpus)} cores; leave at least one")
    cpus = cpus[config.reserve_cpus :]
    if config.slots == "auto":
        drafts = [*_auto(registry, listing.devices), *_cpu_drafts(registry, config, listing.devices, cpus)]
    else:
        drafts = [
            _explicit(registry, listing, slot, where=f"slots[{index}]") for index, slot in enumerate(config.slots)
        ]
    if not drafts:
        raise ConfigError(
            "this host has nothing to run jobs on: no known accelerator was found and cpu_slots is 0; "
            "set cpu_slots, or name devices in slots"
        )
    _refuse_crossing_devices(drafts)
    return _with_cpus(_told_apart(drafts), cpus)


def spare_cpus(slots: Iterable[Slot]) -> tuple[int, ...]:
    """The cores that none of these slots uses."""
    return tuple(sorted(os.sched_getaffinity(0) - {cpu for slot in slots for cpu in slot.cpus}))


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A slot before cores are dealt out."""

    name: str
    gpu_type: GpuType
    devices: tuple[Device, ...]
    #: Cores the operator named; empty: a share of the rest.
    cpus: tuple[int, ...] = ()
    #: No more than this many of the rest.
    at_most: int | None = None

    @property
    def numa_node(self) -> int | None:
        nodes = {device.numa_node for device in self.devices}
        return nodes.pop() if len(nodes) == 1 else None

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(device.uuid for device in self.devices)


def _auto(registry: Registry, devices: Iterable[Device]) -> Iterator[_Draft]:
    for device in devices:
        types = [
            entry
            for entry in registry.matching(Vendor(device.vendor), device.name)
            if entry.detect and entry.count == 1
        ]
        if not types:
            _log.warning(
                "device has no GPU type and is not used; add one (docs/adding-a-gpu-type.md) or name it in slots",
                device=device.name,
                uuid=device.uuid,
            )
        elif len(types) > 1:
            raise ConfigError(
                f"device {device.name!r} ({device.uuid}) matches GPU types {', '.join(entry.name for entry in types)}; "
                "expected one: set detect = false in the others, or name the device in slots"
            )
        else:
            yield _Draft(name=f"{device.vendor}{device.index}", gpu_type=types[0], devices=(device,))


def _cpu_drafts(registry: Registry, config: Config, devices: Sequence[Device], cpus: Sequence[int]) -> Iterator[_Draft]:
    """Slots without accelerator. `auto` makes none beside devices, whose timings they would disturb."""
    if config.cpu_slots == "auto":
        wanted = 0 if devices else max(1, len(cpus) // CPUS_PER_CPU_SLOT)
    else:
        wanted = config.cpu_slots
    if wanted:
        cpu_type = next((entry for entry in registry.all() if entry.vendor is Vendor.NONE and entry.detect), None)
        if cpu_type is None:
            raise ConfigError('cpu_slots: no GPU type with vendor = "none" and detect = true is in the registry')
        for index in range(wanted):
            yield _Draft(name=f"cpu{index}", gpu_type=cpu_type, devices=(), at_most=CPUS_PER_CPU_SLOT)


def _explicit(registry: Registry, listing: Listing, slot: SlotConfig, *, where: str) -> _Draft:
    try:
        gpu_type = registry.get(slot.gpu_type)
    except NotFoundError as error:
        raise ConfigError(f"{where}: {error}") from error
    expected = 0 if gpu_type.vendor is Vendor.NONE else gpu_type.count
    if len(slot.devices) != expected:
        raise ConfigError(
            f"{where}: {len(slot.devices)} devices, expected {expected} for GPU type {gpu_type.name!r} "
            "(UUIDs, PCI addresses or indices)"
        )
    devices = tuple(_find(listing, gpu_type, wanted, where=where) for wanted in slot.devices)
    for device in devices:
        if gpu_type.device_names and gpu_type not in registry.matching(gpu_type.vendor, device.name):
            raise ConfigError(
                f"{where}: device {device.uuid} is a {device.name!r}, expected one of "
                f"{', '.join(gpu_type.device_names)} for GPU type {gpu_type.name!r}"
            )
    if devices:
        name = f"{gpu_type.vendor}{'+'.join(str(device.index) for device in devices)}"
    else:
        name = "cpu" + where.removeprefix("slots[").removesuffix("]")
    return _Draft(
        name=name,
        gpu_type=gpu_type,
        devices=devices,
        cpus=tuple(dict.fromkeys(slot.cpus)),
        at_most=None if devices else CPUS_PER_CPU_SLOT,
    )


def _find(listing: Listing, gpu_type: GpuType, wanted: str, *, where: str) -> Device:
    mine = [device for device in listing.devices if device.vendor == gpu_type.vendor]
    for device in mine:
        if wanted.lower() in (device.uuid.lower(), (device.pci_address or "").lower(), str(device.index)):
            return device
    there = ", ".join(f"{device.index} = {device.uuid} ({device.name})" for device in mine) or "none"
    why = "".join(f"; {problem}" for problem in listing.problems)
    raise ConfigError(f"{where}: no {gpu_type.vendor} device {wanted!r} on this host, found: {there}{why}")


def _refuse_crossing_devices(drafts: Sequence[_Draft]) -> None:
    for one, other in combinations(drafts, 2):
        shared = one.uuids & other.uuids
        if not shared or one.uuids < other.uuids or other.uuids < one.uuids:
            continue
        if one.uuids == other.uuids and one.gpu_type != other.gpu_type:
            continue
        raise ConfigError(
            f"device {min(shared)} is in slots {one.name} and {other.name}; expected the devices of one to lie within "
            "those of the other, and two slots of the same devices to be of different GPU types"
        )


def _told_apart(drafts: Sequence[_Draft]) -> Sequence[_Draft]:
    """Slots of the same devices are told apart by their GPU type."""
    names = [draft.name for draft in drafts]
    return [
        replace(draft, name=f"{draft.name}-{draft.gpu_type.name}") if names.index(draft.name) < position else draft
        for position, draft in enumerate(drafts)
    ]


def _with_cpus(drafts: Sequence[_Draft], cpus: Sequence[int]) -> tuple[Slot, ...]:
    """Deal out the cores: named ones first, then equal shares of the rest, near the slot's devices where possible.

    A slot around others has their cores. Slots within one whose cores are named share those.
    """
    _refuse_shared_cores(drafts)
    named = {cpu for draft in drafts for cpu in draft.cpus}
    shares = {draft.name: draft.cpus for draft in drafts if draft.cpus}
    sharing: dict[str | None, list[_Draft]] = {}
    for draft in drafts:
        if not draft.cpus and not _within(draft, drafts):
            homes = [outer for outer in drafts if outer.cpus and draft in _within(outer, drafts)]
            home = min(homes, key=lambda outer: len(outer.devices), default=None)
            sharing.setdefault(None if home is None else home.name, []).append(draft)
    by_name = {draft.name: draft for draft in drafts}
    for name, group in sharing.items():
        if name is None:
            pool = [cpu for cpu in cpus if cpu not in named]
        else:
            taken = {cpu for inner in _within(by_name[name], drafts) for cpu in inner.cpus}
            pool = [cpu for cpu in by_name[name].cpus if cpu not in taken]
        shares |= _deal(group, pool)
    for draft in drafts:
        if draft.name not in shares:
            inside = (shares.get(inner.name, ()) for inner in _within(draft, drafts))
            shares[draft.name] = tuple(sorted(set().union(*inside)))
    return tuple(
        Slot(
            name=draft.name,
            gpu_type=draft.gpu_type.name,
            devices=draft.devices,
            cpus=shares[draft.name],
            numa_node=draft.numa_node if draft.devices else _node_around(shares[draft.name]),
        )
        for draft in drafts
    )


def _within(outer: _Draft, drafts: Sequence[_Draft]) -> list[_Draft]:
    """The slots whose devices lie within another's; of two with the same devices the later one is the outer."""
    position = drafts.index(outer)
    return [
        draft
        for number, draft in enumerate(drafts)
        if draft.uuids and (draft.uuids < outer.uuids or (draft.uuids == outer.uuids and number < position))
    ]


def _refuse_shared_cores(drafts: Sequence[_Draft]) -> None:
    usable = os.sched_getaffinity(0)
    for position, draft in enumerate(drafts):
        for cpu in draft.cpus:
            if cpu not in usable:
                raise ConfigError(f"slot {draft.name}: core {cpu} is not available, found {sorted(usable)}")
        for other in drafts[:position]:
            shared = set(draft.cpus) & set(other.cpus)
            if shared and not draft.uuids & other.uuids:
                raise ConfigError(
                    f"core {min(shared)} is in slots {other.name} and {draft.name}; runs that share a core time each "
                    "other"
                )


def _deal(sharing: Sequence[_Draft], pool: Sequence[int]) -> dict[str, tuple[int, ...]]:
    free = list(pool)
    if len(sharing) > len(free):
        raise ConfigError(
            f"{len(sharing)} slots share {len(free)} cores, expected at least one core each: "
            "lower cpu_slots or reserve_cpus, or name fewer slots"
        )
    shares: dict[str, tuple[int, ...]] = {}
    for position, draft in enumerate(sharing):
        size = len(free) // (len(sharing) - position)
        if draft.at_most is not None:
            size = min(size, draft.at_most)
        near = _cpus_of_node(draft.numa_node)
        free.sort(key=lambda cpu, near=near: (cpu not in near, cpu))  # type: ignore[misc]  # mypy: default in lambda
        shares[draft.name], free = tuple(sorted(free[:size])), free[size:]
    return shares


def _cpus_of_node(node: int | None) -> frozenset[int]:
    """The cores of a NUMA node by sysfs; empty where that says nothing."""
    if node is None:
        return frozenset()
    try:
        text = (_SYSFS / f"devices/system/node/node{node}/cpulist").read_text(encoding="ascii").strip()
    except OSError:
        return frozenset()
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _node_around(cpus: Sequence[int]) -> int | None:
    """The NUMA node that all these cores are of, on a host of several; None where memory is equally far everywhere."""
    nodes = [int(path.name.removeprefix("node")) for path in (_SYSFS / "devices/system/node").glob("node[0-9]*")]
    around = [node for node in nodes if set(cpus) <= _cpus_of_node(node)]
    return around[0] if len(nodes) > 1 and len(around) == 1 else None


def _numa_node(pci_address: str | None) -> int | None:
    """The NUMA node of a PCI device by sysfs, which says -1 where there is none."""
    if pci_address is None:
        return None
    try:
        node = int((_SYSFS / "bus/pci/devices" / pci_address / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _pci_address(text: str) -> str:
    """Sysfs' spelling: NVML has eight digits in the domain and capitals, sysfs four and none."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _nvidia() -> list[Device]:
    try:
        import pynvml
    except ImportError:
        if Path("/dev/nvidiactl").exists():
            raise
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:  # no driver: a normal host
        return []
    with _finally(pynvml.nvmlShutdown):
        return [_nvidia_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]


def _nvidia_device(nvml: Any, index: int) -> Device:  # noqa: ANN401 - the bindings have no types
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    pci_address = _pci_address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    nodes = _nvidia_nodes(nvml.nvmlDeviceGetMinorNumber(handle))
    return Device(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        vendor=Vendor.NVIDIA.value,
        index=index,
        pci_address=pci_address,
        numa_node=_numa_node(pci_address),
        nodes=nodes,
        groups=_groups(nodes),
    )


#: What CUDA opens beside the device itself; the last one is only there where a profiler was installed.
_NVIDIA_HELPERS: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def _nvidia_nodes(minor: int) -> tuple[str, ...]:
    """The nodes of a device for containers that no container toolkit prepares."""
    helpers = (_DEV / name for name in _NVIDIA_HELPERS)
    return tuple(str(path) for path in (_DEV / f"nvidia{minor}", *helpers) if path.exists())


def _groups(nodes: Iterable[str]) -> tuple[int, ...]:
    """The groups a process needs to open these nodes, where not everybody may."""
    found: set[int] = set()
    for node in nodes:
        try:
            status = Path(node).stat()
        except OSError:
            continue
        everybody = stat.S_IROTH | stat.S_IWOTH
        # Root's own group would open more than these.
        if status.st_mode & everybody != everybody and status.st_gid != 0:
            found.add(status.st_gid)
    return tuple(sorted(found))


def _amd() -> list[Device]:
    # Without /dev/kfd no container can compute, and the bindings' import fails in ways that depend on their version
    # (KeyError where ROCM_HOME and friends are unset, OSError where the library is missing).
    if not _KFD.exists():
        return []
    import amdsmi

    amdsmi.amdsmi_init()
    with _finally(amdsmi.amdsmi_shut_down):
        handles = amdsmi.amdsmi_get_processor_handles()
        return [_amd_device(amdsmi, handle, index) for index, handle in enumerate(handles)]


def _amd_device(smi: Any, handle: object, index: int) -> Device:  # noqa: ANN401 - the bindings have no types
    pci_address = str(smi.amdsmi_get_gpu_device_bdf(handle)).lower()
    nodes = (str(_DEV / "kfd"), *_render_nodes(pci_address))
    return Device(
        uuid=smi.amdsmi_get_gpu_device_uuid(handle),
        name=smi.amdsmi_get_gpu_asic_info(handle)["market_name"],
        vendor=Vendor.AMD.value,
        index=index,
        pci_address=pci_address,
        numa_node=_numa_node(pci_address),
        nodes=nodes,
        groups=_groups(nodes),
    )


def _render_nodes(pci_address: str) -> tuple[str, ...]:
    """The render node of a PCI device by sysfs."""
    directory = _SYSFS / "bus/pci/devices" / pci_address / "drm"
    return tuple(str(_DEV / "dri" / entry.name) for entry in sorted(directory.glob("renderD*")))


@contextmanager
def _finally(close: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    finally:
        close()
