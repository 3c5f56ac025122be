"""GPU types and hosts as the command line prints them. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.safe import one_line
from runner.base.units import age
from runner.cli.render import make_table
from runner.store.records import GpuTypeLine, HostLine, unused

#: Seconds after which a host that has not said goodbye is taken for lost.
SILENT_S = 60.0


def gpu_types_table(types: Sequence[GpuTypeLine], hosts: Sequence[HostLine], registry: Registry) -> RenderableType:
    """GPU types with the number of slots for each on hosts that are up; `registry`: this host's."""
    if not types:
        return Text("no GPU types announced yet; start a daemon with `kernel-runner serve`")
    slots = slots_per_type([line for line in hosts if host_state(line) == "up"])
    entries = {entry.name: entry for entry in registry.all()}
    table = make_table("name", "slots", "queued", "vendor", "aliases", "on hardware", "description", numbers=2)
    for line in types:
        table.add_row(
            Text(one_line(line.name)),
            str(slots.get(line.name, 0)),
            str(line.queued),
            Text(one_line(line.vendor)),
            Text(one_line(", ".join(line.aliases))),
            _on_hardware(entries[line.name]) if line.name in entries else "unknown",
            Text(one_line(line.description)),
        )
    return table


def _on_hardware(entry: GpuType) -> str:
    """The day of the last run on a device of a type, or "never"; a type without devices has none."""
    if entry.vendor is Vendor.NONE:
        return "-"
    return "never" if entry.last_hardware_run is None else entry.last_hardware_run.isoformat()


def hosts_table(hosts: Sequence[HostLine]) -> RenderableType:
    """Daemons with their slots and when each was last heard of."""
    if not hosts:
        return Text("no hosts yet; start a daemon with `kernel-runner serve`")
    table = make_table("name", "state", "version", "slots", "running", "last seen", "")
    for line in hosts:
        counts = slots_per_type((line,))
        drain = [": ".join(filter(None, ("draining", line.drain_reason)))] if line.draining else []
        table.add_row(
            Text(one_line(line.name)),
            host_state(line),
            Text(one_line(line.version)),
            Text(one_line(", ".join(f"{count} x {gpu}" for gpu, count in sorted(counts.items())) or "none")),
            str(line.running),
            f"{age(line.silent_s)} ago",
            Text(one_line("; ".join(drain + unused(line.slots)))),
        )
    return table


def host_state(line: HostLine) -> str:
    """How a host stands: up, draining, silent or stopped; what is gone cannot drain."""
    if line.stopped_at is not None:
        return "stopped"
    if line.silent_s > SILENT_S:
        return "silent"
    return "draining" if line.draining else "up"


def slots_per_type(hosts: Sequence[HostLine]) -> Mapping[str, int]:
    """How many slots these hosts use, by GPU type; those whose last container does not go are left out."""
    return Counter(str(slot.get("gpu_type")) for line in hosts for slot in line.slots if not slot.get("quarantined"))
