"""Whose a process is, for operators: the driver tells only its number. Reads /proc, and changes nothing.

A process that is left on a device is never killed by this: what was ours went with its container, and what is not ours
is not ours to end.
"""

from __future__ import annotations

import re
from pathlib import Path

PROC = Path("/proc")
#: Engines name a container's control group by its id.
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|containerd)?[-/]([0-9a-f]{64})")


def owner_of(pid: int) -> str | None:
    """Name, user and container of a process of this host, in words; None: it is gone, or cannot be seen."""
    directory = PROC / str(pid)
    try:
        name = (directory / "comm").read_text(encoding="utf-8", errors="replace").strip()
        uid = directory.stat().st_uid
        groups = (directory / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _CONTAINER.search(groups)
    return f"{name}, uid {uid}" + ("" if found is None else f", container {found[1][:12]}")
