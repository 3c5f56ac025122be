"""Which process made something that may outlive it, and whether that process is gone.

Containers, images and unfinished directories carry the identity of their maker: boot, PID namespace, number and start
time. So what a killed process left can be told from what a living one uses, also after a reboot and when numbers are
used again. Pure but for /proc. Called by the engine and by `stage`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

PROC = Path("/proc")
#: Field 22 of /proc/PID/stat, counted from behind the name, which may hold anything. Source: proc_pid_stat(5).
_START_TIME = 22 - 3


@functools.cache
def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")


def _namespace() -> str:
    return str((PROC / "self/ns/pid").stat().st_ino)


def _started(pid: int) -> str | None:
    """When a running process began, in ticks since the boot; None if none of that number runs.

    Raises:
        PermissionError: there is one, which /proc does not show to this user (hidepid, ProtectProc).
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
    # A zombie runs no more.
    return None if fields[0] in ("Z", "X") else fields[_START_TIME]


def identity() -> str:
    """This process, in a word that may stand in a label or a file name."""
    pid = os.getpid()
    return f"{_boot()}.{_namespace()}.{pid}.{_started(pid)}"


def is_gone(maker: str) -> bool:
    """Whether the process of that identity has ended; False where that cannot be known from here."""
    parts = maker.split(".")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, started = parts
    if boot != _boot():
        return True
    if namespace != _namespace():
        return False
    try:
        return _started(int(pid)) != started
    except PermissionError:
        return False
