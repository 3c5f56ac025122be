"""Observations of a started container, from three sources: the engine, the host's kernel, and init inside. Pure.

The engine reports what it was asked for (`inspect`). The kernel reports what it enforces: the container's cgroup and
process 1, read from outside. Init reports what it observes inside. `hardening` decides what these ought to be.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

#: Namespaces that every container has for itself.
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


class Source(StrEnum):
    """The source of an observation."""

    #: The engine's answer to `inspect`.
    ENGINE = "engine"
    #: The container's cgroup, and process 1 in the host's /proc.
    KERNEL = "kernel"
    #: Init, from inside, before judge, worker or programs run there.
    INSIDE = "inside"


class _NotObserved:
    """A source reports nothing. This is different from a source that reports that a limit is absent."""

    def __repr__(self) -> str:
        return "nothing"


NOT_OBSERVED: Final = _NotObserved()


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """The kernel's settings. Fields are NOT_OBSERVED where this process cannot read them.

    That is so if the engine runs rootless or in another PID namespace. A limit is `math.inf` if the kernel reports that
    there is none.
    """

    cgroup_version: Any = NOT_OBSERVED
    memory_bytes: Any = NOT_OBSERVED
    #: Version 2 counts swap separately. This is the sum, as version 1 reports it.
    memory_and_swap_bytes: Any = NOT_OBSERVED
    pids: Any = NOT_OBSERVED
    cpus: Any = NOT_OBSERVED
    mems: Any = NOT_OBSERVED
    #: Devices that may be opened, as `c 1:3 rwm`. Version 2 has a BPF program instead, which cannot be read.
    devices: Any = NOT_OBSERVED
    #: Soft and hard limit by name.
    rlimits: Any = NOT_OBSERVED
    oom_score_adj: Any = NOT_OBSERVED
    #: Namespaces that process 1 has in common with this process.
    shared_namespaces: Any = NOT_OBSERVED


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The three sources' observations of one container."""

    #: The whole answer to `inspect`.
    engine: Mapping[str, Any]
    kernel: KernelView
    #: The facts of the `ready` frame.
    inside: Mapping[str, Any]

    @functools.cached_property
    def mounts(self) -> Mapping[str, Mapping[str, Any]]:
        """The mounts inside by mount point. Of several at one point, the topmost."""
        return {mount["target"]: mount for mount in self.inside["mounts"]}


def numbers(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs or memory nodes as the kernel and the engine write it: `0-2,5`.

    Raises:
        ValueError: not such a list.
    """
    values: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        values.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(values))
