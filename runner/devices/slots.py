"""Makes slots of devices and cores, as the configuration asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from runner.base.config import Config, SlotConfig
from runner.base.errors import ConfigError, NotFoundError
from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.logs import get_logger
from runner.base.model import Device, Slot
from runner.devices.listing import Listing, list_devices
from runner.devices.sysfs import cpus_near, cpus_of_node, node_around

_log = get_logger(__name__)

#: Judge and worker of a run hand over to each other all the time. With a core each, neither waits for the other's core.
CPUS_PER_CPU_SLOT: Final = 2


class _DeviceMissing(ConfigError):
    """A device of a slot is not there, though others of its vendor are."""


def detect_slots(registry: Registry, config: Config, *, complete: bool = True) -> tuple[Slot, ...]:
    """The slots of this host as the configuration asks for them.

    With `slots = "auto"` every device whose name matches exactly one detectable single-device type becomes a slot, and
    `cpu_slots` adds slots of the CPU type. A list in `slots` is taken as it is; where `complete` is false, without the
    slots of devices that are missing, if the driver lists others.

    Raises:
        ConfigError: a slot names an unknown type or device, shares a device or core with another, has the wrong number
            of devices, there are more slots than cores, or there is no slot at all.
    """
    listing = list_devices()
    for problem in listing.problems:
        _log.warning("device_not_usable", problem=problem)
    cpus = sorted(os.sched_getaffinity(0))
    if config.reserve_cpus >= len(cpus):
        raise ConfigError(f"reserve_cpus={config.reserve_cpus}, but there are {len(cpus)} cores; leave at least one")
    cpus = cpus[config.reserve_cpus :]
    if config.slots == "auto":
        drafts = [*_auto(registry, listing.devices), *_cpu_drafts(registry, config, listing, cpus)]
    else:
        drafts = []
        for index, slot in enumerate(config.slots):
            try:
                drafts.append(_explicit(registry, listing, slot, where=f"slots[{index}]"))
            except _DeviceMissing as error:
                if complete:
                    raise
                _log.error("slot_left_out", problem=str(error), remedy="mend the device, and restart the daemon")
    if not drafts:
        why = "".join(f"; {problem}" for problem in listing.problems)
        raise ConfigError(
            f"this host has nothing to run jobs on: no known accelerator was found{why}. "
            "Mend the driver, set cpu_slots to a number above 0, or name devices in slots"
        )
    _refuse_sharing(drafts)
    return _with_cpus(_with_names(drafts), cpus)


def described(device: Device) -> str:
    """A device's name for a sentence, with its partition, if it is one."""
    return repr(device.name) if device.partition is None else f"{device.name!r} (partition {device.partition})"


def types_of(registry: Registry, device: Device) -> tuple[GpuType, ...]:
    """The GPU types that a device matches, detected automatically or not."""
    return registry.matching(Vendor(device.vendor), device.name, pci_id=device.pci_id, partition=device.partition)


def spare_cpus(slots: Iterable[Slot]) -> tuple[int, ...]:
    """The cores that none of these slots uses."""
    return tuple(sorted(os.sched_getaffinity(0) - {cpu for slot in slots for cpu in slot.cpus}))


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A slot before it has its cores."""

    name: str
    gpu_type: GpuType
    devices: tuple[Device, ...]
    #: Cores that the operator named; empty: a share of the rest.
    cpus: tuple[int, ...] = ()
    #: The most cores that it gets of the rest.
    at_most: int | None = None

    @property
    def numa_node(self) -> int | None:
        nodes = {device.numa_node for device in self.devices}
        return nodes.pop() if len(nodes) == 1 else None

    @property
    def near(self) -> frozenset[int]:
        """The cores nearest to its devices. A NUMA node may also have cores that are farther away."""
        nearest = frozenset(cpu for device in self.devices for cpu in cpus_near(device.pci_address))
        return nearest or cpus_of_node(self.numa_node)

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(device.uuid for device in self.devices)


def _auto(registry: Registry, devices: Iterable[Device]) -> Iterator[_Draft]:
    for device in devices:
        types = [entry for entry in types_of(registry, device) if entry.detect and entry.count == 1]
        if not types:
            _log.warning(
                "device_without_gpu_type",
                device=described(device),
                uuid=device.uuid,
                effect="it is not used",
                remedy="add a GPU type (docs/adding-a-gpu-type.md), or name the device in slots",
            )
        elif len(types) > 1:
            names = ", ".join(entry.name for entry in types)
            raise ConfigError(
                f"device {described(device)} ({device.uuid}) matches GPU types {names}; expected one: "
                "set detect = false in the others, or name the device in slots"
            )
        else:
            yield _Draft(name=_slot_name(device.vendor, (device,)), gpu_type=types[0], devices=(device,))


def _cpu_drafts(registry: Registry, config: Config, listing: Listing, cpus: Sequence[int]) -> Iterator[_Draft]:
    """Slots without an accelerator. `auto` makes none on a host with devices: they would disturb the devices' times.

    Nor where a driver does not work: a GPU host would serve as another machine, and not come back with its driver.
    """
    if config.cpu_slots == "auto":
        count = 0 if listing.devices or listing.problems else max(1, len(cpus) // CPUS_PER_CPU_SLOT)
    else:
        count = config.cpu_slots
    if count:
        cpu_type = next((entry for entry in registry.all() if entry.vendor is Vendor.NONE and entry.detect), None)
        if cpu_type is None:
            raise ConfigError('cpu_slots: no GPU type with vendor = "none" and detect = true is in the registry')
        for index in range(count):
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
    devices = tuple(_find(listing, gpu_type, identifier, where=where) for identifier in slot.devices)
    for device in devices:
        if (gpu_type.device_names or gpu_type.pci_ids) and gpu_type not in types_of(registry, device):
            raise ConfigError(
                f"{where}: device {device.uuid} is a {described(device)}, expected one of "
                f"{', '.join((*gpu_type.device_names, *gpu_type.pci_ids))} for GPU type {gpu_type.name!r}"
            )
    number = where.removeprefix("slots[").removesuffix("]")
    name = _slot_name(gpu_type.vendor, devices) if devices else f"cpu{number}"
    return _Draft(
        name=name,
        gpu_type=gpu_type,
        devices=devices,
        cpus=tuple(dict.fromkeys(slot.cpus)),
        at_most=None if devices else CPUS_PER_CPU_SLOT,
    )


def _slot_name(vendor: str, devices: Iterable[Device]) -> str:
    return f"{vendor}{'+'.join(str(device.index) for device in devices)}"


def _find(listing: Listing, gpu_type: GpuType, identifier: str, *, where: str) -> Device:
    mine = [device for device in listing.devices if device.vendor == gpu_type.vendor]
    for device in mine:
        if identifier.lower() in (device.uuid.lower(), (device.pci_address or "").lower(), str(device.index)):
            return device
    there = ", ".join(f"{device.index} = {device.uuid} ({device.name})" for device in mine) or "none"
    why = "".join(f"; {problem}" for problem in listing.problems)
    sentence = f"{where}: no {gpu_type.vendor} device {identifier!r} on this host, found: {there}{why}"
    raise _DeviceMissing(sentence) if mine else ConfigError(sentence)


def _refuse_sharing(drafts: Sequence[_Draft]) -> None:
    """Refuse a core that is not there, and a device or a core in two slots."""
    usable = os.sched_getaffinity(0)
    for position, draft in enumerate(drafts):
        if missing := set(draft.cpus) - usable:
            raise ConfigError(f"slot {draft.name}: core {min(missing)} is not available, found {sorted(usable)}")
        for other in drafts[:position]:
            if shared := draft.uuids & other.uuids:
                raise ConfigError(f"device {min(shared)} is in slots {other.name} and {draft.name}, expected one")
            if same := set(draft.cpus) & set(other.cpus):
                why = "runs that share a core time each other"
                raise ConfigError(f"core {min(same)} is in slots {other.name} and {draft.name}; {why}")


def _with_names(drafts: Sequence[_Draft]) -> Sequence[_Draft]:
    """Give each slot a name of its own: those of a divided device are numbered."""
    named: dict[str, _Draft] = {}
    for draft in drafts:
        free = (f"{draft.name}.{number}" for number in count(2))
        name = draft.name if draft.name not in named else next(entry for entry in free if entry not in named)
        named[name] = replace(draft, name=name)
    return list(named.values())


def _with_cpus(drafts: Sequence[_Draft], cpus: Sequence[int]) -> tuple[Slot, ...]:
    """Divide the cores: named ones first, then equal shares of the rest, near the slot's devices where possible."""
    named = {cpu for draft in drafts for cpu in draft.cpus}
    shares = {draft.name: draft.cpus for draft in drafts if draft.cpus}
    shares |= _deal([draft for draft in drafts if not draft.cpus], [cpu for cpu in cpus if cpu not in named])
    return tuple(
        Slot(
            name=draft.name,
            gpu_type=draft.gpu_type.name,
            devices=draft.devices,
            cpus=shares[draft.name],
            numa_node=draft.numa_node if draft.devices else node_around(shares[draft.name]),
        )
        for draft in drafts
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
        near = draft.near
        free.sort(key=lambda cpu, near=near: (cpu not in near, cpu))  # type: ignore[misc]  # mypy: default in lambda
        shares[draft.name], free = tuple(sorted(free[:size])), free[size:]
    return shares
