"""Describes a process for operators: the driver reports only its id. Reads /proc, and changes nothing.

Never kills a process that is left on a device: the daemon's own processes end with their containers, and all others
belong to someone else.
"""

from __future__ import annotations

import re
from pathlib import Path

PROC = Path("/proc")
#: Engines name a container's control group by its id.
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|containerd)?[-/]([0-9a-f]{64})")


def owner_of(pid: int) -> str | None:
    """Name, user and container of a process of this host, as text; None: it is gone, or cannot be read."""
    directory = PROC / str(pid)
    try:
        name = (directory / "comm").read_text(encoding="utf-8", errors="replace").strip()
        uid = directory.stat().st_uid
        groups = (directory / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    container = _CONTAINER.search(groups)
    return f"{name}, uid {uid}" + ("" if container is None else f", container {container[1][:12]}")
