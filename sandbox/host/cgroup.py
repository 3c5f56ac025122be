"""Reads a container's counters and limits from its cgroup, version 1 or 2, from outside. Changes nothing.

The cgroup's directories vanish with the container's last process, so they are held open by descriptor. A value that
cannot be read is None: the engine runs in another PID namespace or rootless, or the kernel is too old.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox import mountinfo

PROC = Path("/proc")
#: Who is killed for its own limit has used all but this much of it: the last allocation did not fit.
_NEAR_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What the kernel has counted for a container since its start."""

    oom_kills: int | None = None
    #: Whether one was killed, or refused a process, below the container's own limit: the host, or a cgroup above, had
    #: no more memory or processes.
    host_short: bool | None = None
    pids_denied: int | None = None
    peak_memory_bytes: int | None = None
    cpu_ns: int | None = None


class CgroupReader:
    """Reads the counters of one container."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._fds: dict[str, int] = {}
        self._last = Counters()
        for controller, path in directories.items():
            try:
                self._fds[controller] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue

    @property
    def version(self) -> int | None:
        """Version of the container's cgroup hierarchy; None if it was not found."""
        return (2 if "" in self._fds else 1) if self._fds else None

    def read(self) -> Counters:
        """Read the counters. A value that can no longer be read keeps its last known value."""
        now = self._version_2() if "" in self._fds else self._version_1()
        self._last = replace(self._last, **{name: value for name, value in vars(now).items() if value is not None})
        return self._last

    def is_frozen(self) -> bool:
        """Whether its processes are kept from running, as by `docker pause`."""
        frozen = _field(self.text("", "cgroup.events"), "frozen") if "" in self._fds else None
        return frozen == 1 or self.text("freezer", "freezer.state").strip() == "FROZEN"

    def close(self) -> None:
        """Close the directories; idempotent."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _version_1(self) -> Counters:
        kills = _field(self.text("memory", "memory.oom_control"), "oom_kill")
        peak = _number(self.text("memory", "memory.max_usage_in_bytes"))
        limit = _number(self.text("memory", "memory.limit_in_bytes"))
        below = peak is not None and limit is not None and peak < limit - _NEAR_BYTES
        denied, short = self._denied("pids")
        return Counters(
            oom_kills=kills,
            host_short=None if kills is None else (kills > 0 and below) or short,
            pids_denied=denied,
            peak_memory_bytes=peak,
            cpu_ns=_number(self.text("cpuacct", "cpuacct.usage")),
        )

    def _version_2(self) -> Counters:
        cpu_us = _field(self.text("", "cpu.stat"), "usage_usec")
        events = self.text("", "memory.events")
        kills = _field(events, "oom_kill")
        denied, short = self._denied("")
        return Counters(
            oom_kills=kills,
            # `oom` counts how often this cgroup's own limit was met; `oom_kill` also what others' limits killed here.
            host_short=None if kills is None else (kills > 0 and _field(events, "oom") == 0) or short,
            pids_denied=denied,
            peak_memory_bytes=_number(self.text("", "memory.peak")),
            cpu_ns=None if cpu_us is None else cpu_us * 1000,
        )

    def _denied(self, controller: str) -> tuple[int | None, bool]:
        """How often a fork was refused, and whether that was below the container's own limit.

        Version 1, and version 2 before Linux 6.11, count here what the limit of a cgroup above refused, too.
        """
        denied = _field(self.text(controller, "pids.events"), "max")
        peak, limit = (_number(self.text(controller, name)) for name in ("pids.peak", "pids.max"))
        # The kernel may miss the peak by a few, where several processes fork at once.
        return denied, bool(denied) and peak is not None and limit is not None and peak < limit - limit // 8

    def text(self, controller: str, name: str) -> str:
        """Read a file of the cgroup. Version 2 has one directory for all controllers. Empty if it cannot be read."""
        directory = self._fds.get("", self._fds.get(controller))
        if directory is None:
            return ""
        try:
            fd = os.open(name, os.O_RDONLY, dir_fd=directory)
        except OSError:
            return ""
        try:
            return os.read(fd, 1 << 16).decode("ascii", "replace")
        except OSError:
            return ""
        finally:
            os.close(fd)


def reader_for(pid: int, container_id: str) -> CgroupReader:
    """Return the reader for a container whose first process has this pid, as the engine reports it.

    If that pid is another process in our PID namespace, every counter is None.
    """
    try:
        membership = (PROC / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        mounts = (PROC / "self" / "mountinfo").read_bytes()
    except OSError:
        return CgroupReader({})
    return CgroupReader(locate(membership, mounts, container_id))


def locate(membership: str, mounts: bytes, container_id: str) -> dict[str, Path]:
    """Map each controller to its directory, from /proc/PID/cgroup and /proc/self/mountinfo; key "" is version 2.

    Sources: cgroups(7) and proc_pid_mountinfo(5). A path without the container's id belongs to another process that
    has this pid in our namespace, so it is left out.
    """
    places = _cgroup_mounts(mounts)
    paths: dict[str, Path] = {}
    for line in membership.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if container_id not in path:
            continue
        names = [""] if hierarchy == "0" else controllers.split(",")
        for name in names:
            if name in places:
                point, root = places[name]
                below = path.removeprefix(root) if root != "/" else path
                paths[name] = Path(point) / below.lstrip("/")
    if any(name in paths for name in ("memory", "pids", "cpuacct")):
        # A hybrid host mounts version 2 as well, but without controllers.
        paths.pop("", None)
    return paths


def _cgroup_mounts(mounts: bytes) -> dict[str, tuple[str, str]]:
    """Map each controller to the mount point and the root of its mount."""
    places: dict[str, tuple[str, str]] = {}
    for mount in mountinfo.parse(mounts):
        if mount.type in ("cgroup", "cgroup2"):
            for name in [""] if mount.type == "cgroup2" else mount.super_options.split(","):
                places.setdefault(name, (mount.point, mount.root))
    return places


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return None


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None
