"""Reads the limits that the host's kernel enforces on a container: from its cgroup, and from process 1 in /proc.

Only reads. `sandbox.policy.hardening` compares the values with the spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from sandbox.host.cgroup import PROC, CgroupReader
from sandbox.policy.observed import NAMESPACES, NOT_OBSERVED, KernelView, numbers

#: Titles in /proc/PID/limits for the limit names of the engine's request.
_RLIMITS: Final = {
    "core": "Max core file size",
    "fsize": "Max file size",
    "nofile": "Max open files",
    "nice": "Max nice priority",
    "rtprio": "Max realtime priority",
}


def read_kernel_view(pid: int, cgroup: CgroupReader) -> KernelView:
    """Read a container's limits; `cgroup` is its own, `pid` is its first process as the engine reports it."""
    if cgroup.version is None:
        # The engine may count processes in another PID namespace, so this pid may belong to any process here.
        return KernelView()
    process = PROC / str(pid)
    return KernelView(
        **_bounds(cgroup),
        rlimits=_observed(lambda: dict(_rlimit_lines((process / "limits").read_text(encoding="ascii").splitlines()))),
        oom_score_adj=_observed(lambda: int((process / "oom_score_adj").read_text(encoding="ascii"))),
        shared_namespaces=_observed(lambda: _shared_namespaces(process)),
    )


def _bounds(reader: CgroupReader) -> dict[str, Any]:
    """The limits in a container's cgroup, by the names of KernelView's fields. Source: cgroups(7)."""
    if reader.version == 2:
        memory, swap = _limit(reader, "memory", "memory.max"), _limit(reader, "memory", "memory.swap.max")
        bounds = {
            "cgroup_version": 2,
            "memory_bytes": memory,
            "memory_and_swap_bytes": NOT_OBSERVED if NOT_OBSERVED in (memory, swap) else memory + swap,
            "pids": _limit(reader, "pids", "pids.max"),
            "cpus": _numbers(reader, "cpuset", "cpuset.cpus.effective"),
            "mems": _numbers(reader, "cpuset", "cpuset.mems.effective"),
        }
    else:
        devices = reader.text("devices", "devices.list").splitlines()
        bounds = {
            "cgroup_version": 1,
            "memory_bytes": _limit(reader, "memory", "memory.limit_in_bytes"),
            "memory_and_swap_bytes": _limit(reader, "memory", "memory.memsw.limit_in_bytes"),
            "pids": _limit(reader, "pids", "pids.max"),
            "cpus": _numbers(reader, "cpuset", "cpuset.cpus"),
            "mems": _numbers(reader, "cpuset", "cpuset.mems"),
            "devices": tuple(devices) if devices else NOT_OBSERVED,
        }
    return bounds


def _limit(reader: CgroupReader, controller: str, name: str) -> Any:  # noqa: ANN401 a number or NOT_OBSERVED
    text = reader.text(controller, name).strip()
    if text == "max":
        return math.inf
    return int(text) if text.isdigit() else NOT_OBSERVED


def _numbers(reader: CgroupReader, controller: str, name: str) -> Any:  # noqa: ANN401 numbers or NOT_OBSERVED
    text = reader.text(controller, name).strip()
    return numbers(text) if text else NOT_OBSERVED


def _observed(read: Callable[[], Any]) -> Any:  # noqa: ANN401 a value or NOT_OBSERVED
    # Only root may read the namespaces of another user's process.
    try:
        return read()
    except (OSError, ValueError):
        return NOT_OBSERVED


def _rlimit_lines(lines: list[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, title in _RLIMITS.items():
        for line in lines:
            if line.startswith(title):
                soft, hard = line.removeprefix(title).split()[:2]
                yield name, (_bound(soft), _bound(hard))


def _bound(text: str) -> float:
    return math.inf if text == "unlimited" else int(text)


def _shared_namespaces(process: Path) -> tuple[str, ...]:
    own = PROC / "self"
    return tuple(name for name in NAMESPACES if (process / "ns" / name).readlink() == (own / "ns" / name).readlink())
