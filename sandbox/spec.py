"""What a sandbox is, as data: pure records that the engine turns into one engine call, and what comes back.

Nothing here talks to an engine. Paths are POSIX paths; sizes are bytes; times are seconds where a person writes them
(limits) and nanoseconds where a machine measured them (outcomes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: Init is uid 0 and root of nothing: all capabilities but SETUID, SETGID and KILL are dropped.
JUDGE_UID = 10001
WORKER_UID = 10002


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A read-only bind mount. There is no writable one: a sandbox writes to its own tmpfs only."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Tmpfs:
    """A writable memory file system of the container, counted against its memory limit."""

    target: str
    size_bytes: int
    uid: int
    gid: int
    mode: int = 0o700
    #: Triton and torch inductor load shared objects from their caches, which Docker's default (noexec) forbids.
    executable: bool = True
    inodes: int = 200_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of a sandbox; every one is enforced outside the submission's process."""

    #: Wall-clock time from the request to the last byte of the report; then the container is killed.
    wall_s: float
    memory_bytes: int
    pids: int
    #: Logical CPUs (cpuset). The list is exact: the container sees no other.
    cpus: tuple[int, ...]
    #: NUMA nodes whose memory may be used; None leaves it to the kernel.
    mems: tuple[int, ...] | None = None
    #: Processor time of all processes together from the request on, by the cgroup's count; None: cores times wall_s.
    cpu_s: float | None = None
    shm_bytes: int = 64 << 20
    nofile: int = 4096
    #: Largest single file.
    fsize_bytes: int = 1 << 30
    #: Bytes of stdout and of stderr kept per process; the rest is read and dropped.
    output_bytes: int = 1 << 20
    #: Bytes of stdout plus stderr after which the process is killed (verdict output_limit).
    output_kill_bytes: int = 64 << 20
    #: Bytes of the whole report stream; more is a protocol error.
    report_bytes: int = 64 << 20


class DeviceDriver(StrEnum):
    """How the engine is asked for an accelerator."""

    CDI = "cdi"
    NVIDIA = "nvidia"
    #: Plain device nodes (AMD without CDI; `host` root file system).
    NODES = "nodes"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Exactly these accelerators, no other."""

    driver: DeviceDriver
    #: CDI names or UUIDs for CDI and NVIDIA; paths of device nodes for NODES.
    ids: tuple[str, ...]
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Boot:
    """What init starts before any request is there.

    `pair`: judge and worker processes, under two uids, joined by a socketpair, both importing what they need.
    `steps`: nothing; programs come with the request and run one after the other as the worker's uid.
    """

    #: "pair" or "steps"
    kind: str
    #: argv of the judge and of the worker (pair only). They find their descriptors in KR_* variables, see init.
    judge: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """One single-use container."""

    #: An image id or digest the engine knows.
    image: str
    #: The interpreter inside the container that runs init, the judge and the worker.
    python: str
    boot: Boot
    limits: Limits
    binds: tuple[Bind, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    devices: Devices | None = None
    #: The whole environment of every process in the container; nothing is inherited.
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "runc"
    #: Where the container's cgroup lies (a slice); None: where the engine puts it.
    cgroup_parent: str | None = None
    hostname: str = "sandbox"


class Ending(StrEnum):
    """Why the container ended, as seen from outside."""

    #: Init sent `end` and the container exited.
    COMPLETED = "completed"
    #: The wall-clock limit passed and the container was killed.
    DEADLINE = "deadline"
    #: The container used up its processor time and was killed.
    CPU_TIME = "cpu_time"
    #: The caller asked for it to be killed.
    CANCELLED = "cancelled"
    #: The container ended without an `end` frame.
    DIED = "died"
    #: The report grew over its cap, or was not a report.
    BAD_REPORT = "bad_report"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the container ended, from the engine and the cgroup, never from what the submission said."""

    ending: Ending
    #: None where the end was not waited for: it was killed in vain, or it had said all.
    exit_code: int | None
    #: Processes the kernel killed for memory, from the cgroup (None where it cannot be read).
    oom_kills: int | None
    #: Times a fork was refused by the pids limit, from the cgroup (None where it cannot be read).
    pids_denied: int | None
    peak_memory_bytes: int | None
    cpu_ns: int | None
    wall_ns: int
    #: A sentence for the log; None when there is nothing to say.
    detail: str | None = None
