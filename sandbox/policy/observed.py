"""What is known of a container that has started, from three witnesses: the engine, the host's kernel, the container itself.

The engine says what it believes it was asked for (`inspect`), the kernel what it enforces (the container's cgroup and
process 1, read from outside), init what it sees from inside. Reads and judges nothing else: `hardening` says
what ought to be observed. Called by the engine, before any request is sent.
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
    """Who says how a setting took effect."""

    #: The engine's answer to `inspect`.
    ENGINE = "engine"
    #: The container's cgroup, and process 1 as the host's /proc shows it.
    KERNEL = "kernel"
    #: Init, from inside, before anything else runs there.
    INSIDE = "inside"


class _NotObserved:
    """A witness has nothing to say; not the same as saying that a limit is absent."""

    def __repr__(self) -> str:
        return "nothing"


NOT_OBSERVED: Final = _NotObserved()


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """What the kernel enforces; NOT_OBSERVED where this process cannot read it (another PID namespace, a rootless engine).

    Limits are `math.inf` where the kernel says that there is none.
    """

    cgroup_version: Any = NOT_OBSERVED
    memory_bytes: Any = NOT_OBSERVED
    #: Version 2 counts swap apart; the sum is version 1's number.
    memory_and_swap_bytes: Any = NOT_OBSERVED
    pids: Any = NOT_OBSERVED
    cpus: Any = NOT_OBSERVED
    mems: Any = NOT_OBSERVED
    #: Devices that may be opened, `c 1:3 rwm`. Version 2 has a program in the list's place, which cannot be read.
    devices: Any = NOT_OBSERVED
    #: Soft and hard limit by name.
    rlimits: Any = NOT_OBSERVED
    oom_score_adj: Any = NOT_OBSERVED
    #: Namespaces that process 1 shares with this process.
    shared_namespaces: Any = NOT_OBSERVED


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the witnesses say of one container."""

    #: The whole answer to `inspect`.
    engine: Mapping[str, Any]
    kernel: KernelView
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
