"""Facts of the kernel about devices and cores: NUMA nodes, nearest cores, device nodes, their groups. Only reads."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

SYSFS = Path("/sys")
DEV = Path("/dev")
PROC = Path("/proc")


def cpus_of_node(node: int | None) -> frozenset[int]:
    """The cores of a NUMA node; empty: unknown."""
    if node is None:
        return frozenset()
    return _cpu_list(SYSFS / f"devices/system/node/node{node}/cpulist")


def cpus_near(pci_address: str | None) -> tuple[int, ...]:
    """The cores nearest to a PCI device, ascending; empty: unknown."""
    if pci_address is None:
        return ()
    return tuple(sorted(_cpu_list(SYSFS / "bus/pci/devices" / pci_address / "local_cpulist")))


def node_around(cpus: Sequence[int]) -> int | None:
    """The NUMA node of all these cores; None: they are of several nodes, or the host has only one."""
    nodes = [int(path.name.removeprefix("node")) for path in (SYSFS / "devices/system/node").glob("node[0-9]*")]
    around = [node for node in nodes if set(cpus) <= cpus_of_node(node)]
    return around[0] if len(nodes) > 1 and len(around) == 1 else None


def numa_node(pci_address: str | None) -> int | None:
    """The NUMA node of a PCI device; None: it has none (-1 in sysfs), or it is unknown."""
    if pci_address is None:
        return None
    try:
        node = int((SYSFS / "bus/pci/devices" / pci_address / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def pci_address(text: str) -> str:
    """A PCI address as sysfs writes it: four digits in the domain, lower case. NVML has eight, and upper case."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def groups(nodes: Iterable[str]) -> tuple[int, ...]:
    """The groups that a process needs to open those of these nodes that are not open to all users."""
    group_ids: set[int] = set()
    for node in nodes:
        try:
            status = Path(node).stat()
        except OSError:
            continue
        all_users = stat.S_IROTH | stat.S_IWOTH
        # Membership in root's own group would open more than these nodes.
        if status.st_mode & all_users != all_users and status.st_gid != 0:
            group_ids.add(status.st_gid)
    return tuple(sorted(group_ids))


def _cpu_list(path: Path) -> frozenset[int]:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return frozenset()
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
