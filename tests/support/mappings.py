"""What the kernel says of this process's mappings."""

from __future__ import annotations

from pathlib import Path


def mapped_kb(address: int, field: str) -> int:
    """A field of the mapping that holds an address, in KiB, as proc_pid_smaps(5) names it."""
    within = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            start, end = (int(part, 16) for part in name.split("-"))
            within = start <= address < end
        elif within and name == f"{field}:":
            return int(rest.split()[0])
    raise AssertionError(f"no mapping that holds {address:x} has a field {field}")
