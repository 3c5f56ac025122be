"""`gpu clocks`: which clocks the GPU types of a host demand of its devices, and how those are.

The command is in `runner.cli.gpu`; what changes a clock, in `runner.devices.locking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runner.base.model import Slot
from runner.cli.finding import Finding, Mark
from runner.devices import Details, Look, Reading, described
from runner.devices.vendors import SUPPORTED
from runner.gpu_types import ClockPolicy, Registry

#: How a device is locked at each start of the daemon, which itself may not.
AT_BOOT = "the lines with `gpu clocks` in /etc/systemd/system/kernel-runner.service.d/site.conf"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What the GPU types of a device's slots demand of it."""

    #: Names of the types; none: it is in no slot.
    types: tuple[str, ...] = ()
    clocks: ClockPolicy = field(default_factory=ClockPolicy)

    def text(self, vendor: str) -> str:
        """In a few words, for a device of a vendor."""
        clocks = ((self.clocks.sm_mhz, "SM"), (self.clocks.memory_mhz, "memory"))
        most = " at most" if SUPPORTED[vendor].clock_is_limit else ""
        return ", ".join(f"{name} {mhz} MHz{most}" for mhz, name in clocks if mhz is not None) or "no clock"


def demands_of(slots: Iterable[Slot], registry: Registry) -> Mapping[str, Demand]:
    """UUID of a device -> what is demanded of it; types of one device that demand anything demand the same."""
    demands: dict[str, Demand] = {}
    for slot in slots:
        gpu = registry.get(slot.gpu_type)
        for device in slot.devices:
            demand = demands.get(device.uuid, Demand())
            merged = ClockPolicy(
                sm_mhz=demand.clocks.sm_mhz if gpu.clocks.sm_mhz is None else gpu.clocks.sm_mhz,
                memory_mhz=demand.clocks.memory_mhz if gpu.clocks.memory_mhz is None else gpu.clocks.memory_mhz,
            )
            demands[device.uuid] = Demand(types=tuple(dict.fromkeys((*demand.types, gpu.name))), clocks=merged)
    return demands


def state_of(look: Look, demand: Demand) -> Iterator[Finding]:
    """The clocks demanded of a device, its clocks now, and its limits."""
    name, what = _name(look), described(look.device)
    if look.details is None or look.reading is None:
        yield Finding(name=name, mark=Mark.FAILED, found=f"{what} does not answer", remedy="reset it or the host")
        return
    now = ", ".join(
        f"{clock} {'unknown' if mhz is None else f'{mhz} MHz'}{'' if most is None else f' of at most {most}'}"
        for clock, mhz, most in _clocks(look.details, look.reading)
    )
    is_what = (
        f"is {', '.join(demand.types)}, which demands {demand.text(look.device.vendor)}"
        if demand.types
        else "is in no slot"
    )
    too_high = list(_too_high(look, demand))
    yield Finding(
        name=name,
        mark=Mark.FAILED if too_high else Mark.OK,
        found=f"{what} {is_what}; now: {now}",
        remedy=f"{'; '.join(too_high)}: correct the GPU type" if too_high else None,
    )


def outcome_of(look: Look, demand: Demand, refusal: str | None, *, lock: bool) -> Iterator[Finding]:
    """The outcome of locking the clocks of a device, or of giving them back."""
    name, what = _name(look), described(look.device)
    if not demand.clocks.locks:
        why = f"{', '.join(demand.types)} demands no clock" if demand.types else "it is in no slot"
        yield Finding(name=name, mark=Mark.NOTE, found=f"{what} is left as it is: {why}")
    elif refusal is not None:
        remedy = "see which clocks it knows: nvidia-smi -q -d SUPPORTED_CLOCKS, amd-smi static --clock"
        yield Finding(
            name=name,
            mark=Mark.FAILED,
            found=f"{what} is not {'locked' if lock else 'released'}: {refusal}",
            remedy=remedy if lock else None,
        )
    else:
        done = f"locked: {demand.text(look.device.vendor)}" if lock else "released"
        yield Finding(name=name, mark=Mark.OK, found=f"{what} is {done}")
        if lock and look.details is not None and look.details.persistence is False:
            yield Finding(
                name=name,
                mark=Mark.WARNING,
                found="persistence mode is off: the driver forgets the clocks when the last process closes the device",
                remedy="let nvidia-persistenced run, or nvidia-smi -pm 1",
            )


def document(look: Look, demand: Demand, refusal: str | None) -> dict[str, Any]:
    """A device as `gpu clocks --json` prints it."""
    details, reading = look.details or Details(), look.reading or Reading()
    return {
        "device": asdict(look.device),
        "types": list(demand.types),
        "demanded": {"sm_mhz": demand.clocks.sm_mhz, "memory_mhz": demand.clocks.memory_mhz},
        "now": {"sm_mhz": reading.sm_clock_mhz, "memory_mhz": reading.memory_clock_mhz},
        "highest": {"sm_mhz": details.max_sm_clock_mhz, "memory_mhz": details.max_memory_clock_mhz},
        "refused": refusal,
    }


def _name(look: Look) -> str:
    return f"{look.device.vendor} {look.device.index}"


def _clocks(details: Details, reading: Reading) -> Sequence[tuple[str, int | None, int | None]]:
    return (
        ("SM", reading.sm_clock_mhz, details.max_sm_clock_mhz),
        ("memory", reading.memory_clock_mhz, details.max_memory_clock_mhz),
    )


def _too_high(look: Look, demand: Demand) -> Iterator[str]:
    """Clocks that the device never reaches; where a demand is an upper limit, that does no harm."""
    if look.details is None or SUPPORTED[look.device.vendor].clock_is_limit:
        return
    for key, wanted, most in (
        ("sm_mhz", demand.clocks.sm_mhz, look.details.max_sm_clock_mhz),
        ("memory_mhz", demand.clocks.memory_mhz, look.details.max_memory_clock_mhz),
    ):
        if wanted is not None and most is not None and wanted > most:
            yield f"clocks.{key}: found {wanted}, expected {most} at most"
