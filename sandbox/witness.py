"""What is known of a container that has started, from three witnesses: the engine, the host's kernel, the box itself.

The engine says what it believes it was asked for (`inspect`), the kernel what it enforces (the container's cgroup and
process 1, read from outside), the steward what it sees from inside. Reads and judges nothing else: `hardening` says
what ought to be seen. Called by the engine, before any request is sent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sandbox.cgroup import PROC, CgroupReader

#: Namespaces that every container has for itself.
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
#: The lines of /proc/PID/limits for the names that the engine's request uses.
_RLIMITS: Final = {"core": "Max core file size", "fsize": "Max file size", "nofile": "Max open files"}


class Witness(StrEnum):
    """Who says how a setting took effect."""

    #: The engine's answer to `inspect`.
    ENGINE = "engine"
    #: The container's cgroup, and process 1 as the host's /proc shows it.
    KERNEL = "kernel"
    #: The steward, from inside, before anything else runs there.
    INSIDE = "inside"


class _Unseen:
    """A witness has nothing to say; not the same as saying that a limit is absent."""

    def __repr__(self) -> str:
        return "nothing"


UNSEEN: Final = _Unseen()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What the kernel enforces; UNSEEN where this process cannot read it (another PID namespace, a rootless engine).

    Limits are `math.inf` where the kernel says that there is none.
    """

    cgroup_version: Any = UNSEEN
    memory_bytes: Any = UNSEEN
    #: Version 2 counts swap apart; the sum is version 1's number.
    memory_and_swap_bytes: Any = UNSEEN
    pids: Any = UNSEEN
    cpus: Any = UNSEEN
    mems: Any = UNSEEN
    #: Devices that may be opened, `c 1:3 rwm`. Version 2 has a program in the list's place, which cannot be read.
    devices: Any = UNSEEN
    #: Soft and hard limit by name.
    rlimits: Any = UNSEEN
    oom_score_adj: Any = UNSEEN
    #: Namespaces that process 1 shares with this process.
    shared_namespaces: Any = UNSEEN


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the witnesses say of one container."""

    #: The whole answer to `inspect`.
    engine: Mapping[str, Any]
    kernel: Kernel
    #: The facts of the `ready` frame.
    inside: Mapping[str, Any]

    @functools.cached_property
    def mounts(self) -> Mapping[str, Mapping[str, Any]]:
        """What is mounted inside, by mount point; the topmost where several are."""
        return {mount["target"]: mount for mount in self.inside["mounts"]}


def numbers(text: str) -> tuple[int, ...]:
    """A list of processors or memory nodes as the kernel and the engine write it: `0-2,5`.

    Raises:
        ValueError: it is none.
    """
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def kernel_view(pid: int, cgroup: CgroupReader) -> Kernel:
    """What the kernel says of a container: `cgroup` is its own, `pid` its first process as the engine reports it."""
    if cgroup.version is None:
        # The engine numbers processes otherwise than we do: this one may be anybody's.
        return Kernel()
    process = PROC / str(pid)
    return Kernel(
        **_bounds(cgroup),
        rlimits=_rlimits(process),
        oom_score_adj=_oom_score_adj(process),
        shared_namespaces=_shared_namespaces(process),
    )


def _bounds(reader: CgroupReader) -> dict[str, Any]:
    """The limits in a container's cgroup, by the names of Kernel's fields. Source: cgroups(7)."""
    if reader.version == 2:
        memory, swap = _limit(reader, "memory", "memory.max"), _limit(reader, "memory", "memory.swap.max")
        found = {
            "cgroup_version": 2,
            "memory_bytes": memory,
            "memory_and_swap_bytes": UNSEEN if UNSEEN in (memory, swap) else memory + swap,
            "pids": _limit(reader, "pids", "pids.max"),
            "cpus": _numbers(reader, "cpuset", "cpuset.cpus.effective"),
            "mems": _numbers(reader, "cpuset", "cpuset.mems.effective"),
        }
    else:
        devices = reader.text("devices", "devices.list").splitlines()
        found = {
            "cgroup_version": 1,
            "memory_bytes": _limit(reader, "memory", "memory.limit_in_bytes"),
            "memory_and_swap_bytes": _limit(reader, "memory", "memory.memsw.limit_in_bytes"),
            "pids": _limit(reader, "pids", "pids.max"),
            "cpus": _numbers(reader, "cpuset", "cpuset.cpus"),
            "mems": _numbers(reader, "cpuset", "cpuset.mems"),
            "devices": tuple(devices) if devices else UNSEEN,
        }
    return found


def _limit(reader: CgroupReader, controller: str, name: str) -> Any:  # noqa: ANN401 a number or UNSEEN
    text = reader.text(controller, name).strip()
    if text == "max":
        return math.inf
    return int(text) if text.isdigit() else UNSEEN


def _numbers(reader: CgroupReader, controller: str, name: str) -> Any:  # noqa: ANN401 numbers or UNSEEN
    text = reader.text(controller, name).strip()
    return numbers(text) if text else UNSEEN


def _rlimits(process: Path) -> Any:  # noqa: ANN401 limits or UNSEEN
    try:
        lines = (process / "limits").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return UNSEEN
    return dict(_rlimit_lines(lines))


def _rlimit_lines(lines: list[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, title in _RLIMITS.items():
        for line in lines:
            if line.startswith(title):
                soft, hard = line.removeprefix(title).split()[:2]
                yield name, (_bound(soft), _bound(hard))


def _bound(text: str) -> float:
    return math.inf if text == "unlimited" else int(text)


def _oom_score_adj(process: Path) -> Any:  # noqa: ANN401 a number or UNSEEN
    try:
        return int((process / "oom_score_adj").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return UNSEEN


def _shared_namespaces(process: Path) -> Any:  # noqa: ANN401 names or UNSEEN
    try:
        return tuple(
            name
            for name in NAMESPACES
            if (process / "ns" / name).readlink() == (PROC / "self" / "ns" / name).readlink()
        )
    except OSError:
        # Only root may look.
        return UNSEEN
