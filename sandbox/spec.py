"""A sandbox as data: the spec that the engine turns into one container, and the outcome that comes back. Pure.

Paths are POSIX paths and sizes are bytes. Limits are in seconds, because people write them. Measured times are in
nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Owner(StrEnum):
    """Whose a memory file system is. Root is init, without root's power: it has SETUID, SETGID and KILL alone."""

    ROOT = "root"
    JUDGE = "judge"
    WORKER = "worker"


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The uids of a container's judge and worker, which are their gids, too.

    No other container has them at the same time: per uid the kernel counts, for the whole host, descriptors in flight,
    epoll watches, inotify instances, queued signals, pages in pipes, processes and locked memory.
    """

    judge: int
    worker: int

    def uid(self, owner: Owner) -> int:
        """The uid of an owner."""
        return {Owner.ROOT: 0, Owner.JUDGE: self.judge, Owner.WORKER: self.worker}[owner]


#: Reserved: 10000 to 12000. The first is the template's real uid (`sandbox.inside.template`).
ACCOUNTS = tuple(Accounts(judge=uid, worker=uid + 1) for uid in range(10_001, 12_001, 2))


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A read-only bind mount. There is no writable kind: a sandbox writes only to its own tmpfs."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Tmpfs:
    """A writable in-memory file system of the container. Its content counts against the memory limit."""

    target: str
    size_bytes: int
    owner: Owner
    mode: int = 0o700
    inodes: int = 200_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a sandbox. Each one is enforced outside the submission's process."""

    #: Wall-clock time from the request to the last byte of the report. After it the container is killed.
    wall_s: float
    memory_bytes: int
    pids: int
    #: Logical CPUs (cpuset). The list is exact: the container can use no other CPU.
    cpus: tuple[int, ...]
    #: NUMA nodes whose memory may be used; None: the kernel chooses.
    mems: tuple[int, ...] | None = None
    #: CPU time of all processes together since the request, counted by the cgroup; None: number of CPUs times wall_s.
    cpu_s: float | None = None
    shm_bytes: int = 64 << 20
    nofile: int = 4096
    #: Size of the largest single file.
    fsize_bytes: int = 1 << 30
    #: Bytes of stdout, and of stderr, kept per process; the rest is read and dropped.
    output_bytes: int = 1 << 20
    #: A process is killed (verdict output_limit) when its stdout and stderr together exceed this many bytes.
    output_kill_bytes: int = 64 << 20
    #: Bytes of the whole report stream. A longer one is a protocol error.
    report_bytes: int = 64 << 20


class DeviceDriver(StrEnum):
    """How the engine is asked for an accelerator."""

    CDI = "cdi"
    NVIDIA = "nvidia"
    #: Plain device nodes: AMD without CDI, and the `host` root file system.
    NODES = "nodes"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Exactly these accelerators and no others."""

    driver: DeviceDriver
    #: CDI names or UUIDs for CDI and NVIDIA; paths of device nodes for NODES.
    ids: tuple[str, ...]
    groups: tuple[int, ...] = ()
    #: CDI only: the nodes that the specs of these names add, and no other may be inside; empty: they are not known.
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Boot:
    """The processes that init starts before a request arrives.

    `pair`: a judge and a worker under two uids, joined by a socketpair. Both import their libraries in advance.
    `steps`: none. The request brings programs, which run one after the other under the worker's uid.
    """

    #: "pair" or "steps"
    kind: str
    #: argv of the judge, of a worker, and of a rank checker, which runs beside the judge for each rank of a request
    #: that has ranks (pair only). KR_* variables name their descriptors, see sandbox.inside.pair.
    judge: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()
    rank_checker: tuple[str, ...] = ()
    #: Python code that runs once, before all of them: they are forks of the process that ran it. Then each is
    #: `python -I -c SOURCE`. Empty: they are started separately.
    preload: str = ""
    #: Python code that forks run which are started ahead, before they become workers. Empty: none is started ahead.
    ahead: str = ""
    #: Whether a process may open sockets of TCP and UDP, which reach the loopback alone.
    loopback: bool = True


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """One single-use container."""

    #: An image id or digest that the engine knows.
    image: str
    #: The interpreter inside the container that runs init, the judge and the worker.
    python: str
    boot: Boot
    limits: Limits
    #: Other cores, as many, for the preload of a pair: the container gets its own afterwards. Empty: it has its own.
    import_cpus: tuple[int, ...] = ()
    binds: tuple[Bind, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    devices: Devices | None = None
    #: The whole environment of every process in the container. Nothing is inherited from the daemon or the image.
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "runc"
    #: The slice that holds the container's cgroup; None: the engine chooses.
    cgroup_parent: str | None = None
    #: The engine replaces them by a pair that no container of this host has.
    accounts: Accounts = ACCOUNTS[0]


class Ending(StrEnum):
    """Why the container ended, as observed from outside."""

    #: Init sent `end` and the container exited.
    COMPLETED = "completed"
    #: The wall-clock limit passed and the container was killed.
    DEADLINE = "deadline"
    #: The container used all its CPU time and was killed.
    CPU_TIME = "cpu_time"
    #: The caller cancelled the run, and the container was killed.
    CANCELLED = "cancelled"
    #: The container ended without an `end` frame.
    DIED = "died"
    #: The report exceeded its limit or broke the protocol.
    BAD_REPORT = "bad_report"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the container ended, from the engine and the cgroup, never from the submission's own statements."""

    ending: Ending
    #: None if the end was not waited for: the report was complete, or the kill failed.
    exit_code: int | None
    #: Processes that the kernel killed for memory, from the cgroup; None where it cannot be read.
    oom_kills: int | None
    #: Whether those, or refused forks, were for what the host, or a cgroup above, lacked; its own limit was not met.
    host_short: bool = False
    #: How often the pids limit refused a fork, from the cgroup; None where it cannot be read.
    pids_denied: int | None
    peak_memory_bytes: int | None
    cpu_ns: int | None
    wall_ns: int
    #: A sentence for the log; None if there is nothing to report.
    detail: str | None = None
