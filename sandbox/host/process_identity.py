"""Identifies processes across reboots and reused process ids, to find what a killed process left behind.

Containers, images and unfinished directories carry the identity of the process that made them: boot id, PID namespace,
process id and start time. If that process has ended, they can be removed. Reads /proc and nothing else.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

PROC = Path("/proc")
#: Field 22 of /proc/PID/stat, counted after the process name, which may hold any character. Source: proc_pid_stat(5).
_START_TIME = 22 - 3


@functools.cache
def boot_id() -> str:
    """Return the id of the kernel that runs, which no other machine and no later boot has."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")


def _namespace() -> str:
    return str((PROC / "self/ns/pid").stat().st_ino)


def _started(pid: int) -> str | None:
    """Return the start time of a running process in ticks since the boot; None if no process has this id.

    Raises:
        PermissionError: the process exists, but /proc hides it from this user (hidepid, ProtectProc).
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        raise PermissionError(f"process {pid} is there, but /proc does not show it") from None
    fields = text.rpartition(")")[2].split()
    # A zombie has ended.
    return None if fields[0] in ("Z", "X") else fields[_START_TIME]


def identity() -> str:
    """Return the identity of this process, usable in labels and file names."""
    pid = os.getpid()
    return f"{boot_id()}.{_namespace()}.{pid}.{_started(pid)}"


def is_gone(maker: str) -> bool:
    """Whether the process with this identity has ended; False if this process cannot know."""
    parts = maker.split(".")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, started = parts
    if boot != boot_id():
        return True
    if namespace != _namespace():
        return False
    try:
        return _started(int(pid)) != started
    except PermissionError:
        return False
