"""Every hardening setting of a container, in one table, each with its reason and with how its effect is proved.

Pure. `hostconfig` builds the engine's request from this table, so nothing is enforced that is not listed here, and
nothing listed here can be forgotten. `violations` compares what three witnesses say of a container that has started
(`witness`) with what was asked for; no request is sent into a container that differs. `kernel-runner check --explain` and
docs/security.md print the table.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.policy import checks, normalize
from sandbox.policy.checks import Check
from sandbox.policy.observed import NOT_OBSERVED, Observed, Source
from sandbox.spec import DeviceDriver, Devices, SandboxSpec

#: Changing uid and killing what changed uid is all init does as root.
CAPABILITIES = ("KILL", "SETGID", "SETUID")
#: The same as bits of CapEff (capability(7): KILL 5, SETGID 6, SETUID 7).
CAPABILITY_BITS = 1 << 5 | 1 << 6 | 1 << 7
#: A value in an error: a seccomp list is as long as a book.
_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One setting: where it stands in the engine's create request, why, its value for a spec, and what proves it."""

    #: Path in the body of POST /containers/create.
    key: str
    reason: str
    #: None leaves the key out.
    value: Callable[[SandboxSpec], Any]
    checks: tuple[Check, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """Who is asked about it, in the order of the enumeration."""
        asked = {check.source for check in self.checks}
        return tuple(source for source in Source if source in asked)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that did not take effect as asked for."""

    setting: str
    source: Source
    what: str
    found: Any
    expected: Any

    def __str__(self) -> str:
        found, expected = (_cut(repr(value)) for value in (self.found, self.expected))
        return f"{self.setting}: {self.what} ({self.source}) is {found}, expected {expected}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


@functools.cache
def seccomp_profile() -> str:
    """The system call allow-list as JSON text; it travels with every request, so the engine's default cannot differ."""
    return Path(__file__).with_name("seccomp.json").read_text(encoding="utf-8")


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    limits = {"core": 1, "nofile": spec.limits.nofile, "fsize": spec.limits.fsize_bytes}
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    return {
        fs.target: (
            f"rw,nosuid,nodev,{'exec' if fs.executable else 'noexec'},size={fs.size_bytes},nr_inodes={fs.inodes},"
            f"uid={fs.uid},gid={fs.gid},mode={fs.mode:04o}"
        )
        for fs in spec.tmpfs
    }


def _mounts(spec: SandboxSpec) -> list[dict[str, Any]]:
    return [
        {
            "Type": "bind",
            "Source": bind.source,
            "Target": bind.target,
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
        }
        for bind in spec.binds
    ]


def _environment(spec: SandboxSpec) -> list[str]:
    env = dict(spec.environment)
    if spec.devices is None or spec.devices.driver is not DeviceDriver.NVIDIA:
        env["NVIDIA_VISIBLE_DEVICES"] = "void"
    return [f"{name}={value}" for name, value in sorted(env.items())]


def _device_requests(spec: SandboxSpec) -> list[dict[str, Any]]:
    match spec.devices:
        case Devices(driver=DeviceDriver.CDI, ids=ids):
            return [{"Driver": "cdi", "DeviceIDs": list(ids)}]
        case Devices(driver=DeviceDriver.NVIDIA, ids=ids):
            return [{"Driver": "nvidia", "DeviceIDs": list(ids), "Capabilities": [["gpu", "compute", "utility"]]}]
        case _:
            return []


def _device_nodes(spec: SandboxSpec) -> list[dict[str, str]]:
    if spec.devices is None or spec.devices.driver is not DeviceDriver.NODES:
        return []
    return [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rw"} for path in spec.devices.ids]


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in sorted(values))


def _rule(
    key: str,
    reason: str,
    value: Callable[[SandboxSpec], Any],
    *more: Check,
    normal_form: Callable[[Any], Any] = normalize.empty_as_none,
    default: object = None,
) -> Rule:
    """A setting that the engine repeats in its own words, and what other witnesses say of it.

    `default`: what the engine ought to say of a key that is left out.
    """

    def expected(spec: SandboxSpec) -> Any:  # noqa: ANN401 whatever JSON holds
        asked = value(spec)
        return normal_form(default if asked is None else asked)

    repeated = Check(
        source=Source.ENGINE,
        what="its value",
        expected=expected,
        found=lambda _, observed: normal_form(checks.engine_value(observed, key)),
    )
    return Rule(key=key, reason=reason, value=value, checks=(repeated, *more))


def _never_sent(
    key: str, reason: str, *more: Check, normal_form: Callable[[Any], Any] = normalize.empty_as_none
) -> Rule:
    return _rule(key, reason, lambda _: None, *more, normal_form=normal_form)


def _environment_found(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """Of the variables, those that are ours to set; what an image adds does not get past init."""
    ours = {entry.partition("=")[0] for entry in _environment(spec)}
    return normalize.sorted_set(
        entry for entry in checks.engine_value(observed, "Env") or () if entry.partition("=")[0] in ours
    )


def _private(value: str | None) -> str | None:
    """Engines write a namespace of the container's own in several ways."""
    return None if value in ("", "private") else value


def _pages(size_bytes: int) -> int:
    """What a cgroup makes of a limit: whole pages."""
    return size_bytes // checks.PAGE_BYTES * checks.PAGE_BYTES


def _tmpfs_owners(spec: SandboxSpec) -> dict[str, Any]:
    return {fs.target: ("tmpfs", fs.uid, fs.gid, fs.mode) for fs in spec.tmpfs}


def _expected_rlimits(spec: SandboxSpec) -> dict[str, tuple[int, int]]:
    return {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in _ulimits(spec)}


RULES: tuple[Rule, ...] = (
    _rule(
        "User",
        "The image must not choose who runs process 1.",
        lambda _: "0:0",
        checks.inside_check("the uid of process 1", lambda _: 0, lambda _, observed: observed.inside["uid"]),
    ),
    Rule(
        key="Env",
        reason="Nothing of the daemon's environment gets in. Images set NVIDIA_VISIBLE_DEVICES=all, which hands out"
        " every GPU of the host unless it is overridden.",
        value=_environment,
        checks=(
            Check(
                source=Source.ENGINE,
                what="the part that is ours",
                expected=lambda spec: normalize.sorted_set(_environment(spec)),
                found=_environment_found,
            ),
        ),
    ),
    _rule(
        "Healthcheck",
        "An image's health check would run a program of the image beside init, as root.",
        lambda _: {"Test": ["NONE"]},
        normal_form=lambda value: tuple((value or {}).get("Test") or ()),
    ),
    _rule(
        "HostConfig.NetworkMode",
        "No network: nothing to exfiltrate to, nothing to attack, no packages to install at run time.",
        lambda _: "none",
        checks.own_namespace_check("net"),
        checks.inside_check("the list of interfaces besides lo", lambda _: (), checks.unexpected_interfaces),
    ),
    _rule(
        "HostConfig.ReadonlyRootfs",
        "Interpreter, libraries and harness cannot be replaced; what is written lies in sized memory.",
        lambda _: True,
        checks.inside_check(
            "the root's being read-only", lambda _: True, lambda _, observed: "ro" in checks.options_of(observed, "/")
        ),
    ),
    _rule(
        "HostConfig.Tmpfs",
        "The only writable places: sized, counted against the memory limit, without set-uid and device files,"
        " executable because Triton and inductor load what they compile.",
        _tmpfs,
        checks.inside_check("the type, owner, group, mode of each", _tmpfs_owners, checks.tmpfs_owners),
        checks.inside_check(
            "the size in bytes and the number of files of each",
            lambda spec: {fs.target: (fs.size_bytes, fs.inodes) for fs in spec.tmpfs},
            checks.tmpfs_sizes,
            except_under=checks.GVISOR,
        ),
        checks.inside_check(
            "the options of each",
            checks.expected_tmpfs_options,
            checks.tmpfs_options,
            except_under=checks.GVISOR,
        ),
        normal_form=normalize.mount_options,
    ),
    _rule(
        "HostConfig.Mounts",
        "Binds are read-only, without what is mounted below them and without propagation.",
        _mounts,
        Check(
            source=Source.ENGINE,
            what="the list of what is mounted",
            expected=lambda spec: normalize.sorted_set(
                (bind.target, "bind", bind.source, False, "rprivate") for bind in spec.binds
            ),
            found=checks.reported_mounts,
        ),
        checks.inside_check("the list of binds that are missing or writable", lambda _: (), checks.unprotected_binds),
        checks.inside_check(
            "the list of writable places nobody asked for", lambda _: (), checks.unexpected_writable_mounts
        ),
        normal_form=normalize.mount_requests,
    ),
    _rule(
        "HostConfig.CapDrop",
        "Root in the container is no root.",
        lambda _: ["ALL"],
        checks.inside_check(
            "the bounding set", lambda _: CAPABILITY_BITS, lambda _, observed: int(observed.inside["cap_bnd"], 16)
        ),
        normal_form=normalize.capabilities,
    ),
    _rule(
        "HostConfig.CapAdd",
        "Init changes to the uids of judge and worker, and kills their processes. No more.",
        lambda _: list(CAPABILITIES),
        checks.inside_check(
            "the effective set", lambda _: CAPABILITY_BITS, lambda _, observed: int(observed.inside["cap_eff"], 16)
        ),
        normal_form=normalize.capabilities,
    ),
    _rule(
        "HostConfig.SecurityOpt",
        "no-new-privileges makes every set-uid program of the image or of /usr harmless; the seccomp list leaves"
        " out ptrace, bpf, io_uring, userfaultfd, keyrings, namespaces, mounts and exotic sockets.",
        lambda _: ["no-new-privileges", f"seccomp={seccomp_profile()}"],
        checks.inside_check("no_new_privs of process 1", lambda _: "1", checks.no_new_privs),
        checks.inside_check(
            "the seccomp mode of process 1",
            lambda _: "2",
            lambda _, observed: observed.inside["seccomp"],
            except_under=checks.GVISOR,
        ),
        normal_form=normalize.security_options,
    ),
    _rule(
        "HostConfig.Privileged",
        "Said, not left to a default.",
        lambda _: False,
    ),
    _rule(
        "HostConfig.PidsLimit",
        "A fork bomb ends at this number of processes and threads.",
        lambda spec: spec.limits.pids,
        checks.kernel_check("the cgroup's limit of processes", "pids", lambda spec: spec.limits.pids),
    ),
    _rule(
        "HostConfig.Memory",
        "A memory bomb ends here; memory file systems count.",
        lambda spec: spec.limits.memory_bytes,
        checks.kernel_check("the cgroup's memory limit", "memory_bytes", lambda spec: _pages(spec.limits.memory_bytes)),
    ),
    _rule(
        "HostConfig.MemorySwap",
        "Memory plus swap equals memory: no swap, or a bomb would slow down the whole host. A kernel with cgroup"
        " version 1 that does not count swap has to be booted with swapaccount=1.",
        lambda spec: spec.limits.memory_bytes,
        checks.kernel_check(
            "the cgroup's limit of memory and swap",
            "memory_and_swap_bytes",
            lambda spec: _pages(spec.limits.memory_bytes),
        ),
    ),
    _rule(
        "HostConfig.OomScoreAdj",
        "When the host itself runs out of memory, a sandbox goes before the daemon and the database.",
        lambda _: 100,
        checks.kernel_check("the score of process 1", "oom_score_adj", lambda _: 100),
    ),
    _rule(
        "HostConfig.CpusetCpus",
        "Exactly the slot's cores: neighbours are not disturbed and timings are comparable.",
        lambda spec: _numbers(spec.limits.cpus),
        checks.kernel_check("the cgroup's list", "cpus", lambda spec: normalize.sorted_set(spec.limits.cpus)),
        checks.inside_check(
            "the affinity of process 1",
            checks.expected_affinity,
            lambda _, observed: normalize.sorted_set(observed.inside["cpus"]),
        ),
        normal_form=normalize.number_list,
    ),
    _rule(
        "HostConfig.CpusetMems",
        "Memory of the device's NUMA node.",
        lambda spec: None if spec.limits.mems is None else _numbers(spec.limits.mems),
        Check(
            source=Source.KERNEL,
            what="the cgroup's list",
            expected=lambda spec: None if spec.limits.mems is None else normalize.sorted_set(spec.limits.mems),
            found=lambda spec, observed: None if spec.limits.mems is None else observed.kernel.mems,
        ),
        normal_form=normalize.number_list,
    ),
    _rule(
        "HostConfig.IpcMode",
        "System V objects and /dev/shm are the container's own.",
        lambda _: "private",
        checks.own_namespace_check("ipc"),
    ),
    _rule(
        "HostConfig.ShmSize",
        "Shared memory is sized like every other writable place.",
        lambda spec: spec.limits.shm_bytes,
        checks.inside_check(
            "the size of /dev/shm in bytes",
            lambda spec: spec.limits.shm_bytes,
            lambda spec, observed: checks.size_of(observed, "/dev/shm", spec.limits.shm_bytes),  # noqa: S108 inside
            except_under=checks.GVISOR,
        ),
    ),
    _rule(
        "HostConfig.CgroupnsMode",
        "The host's cgroup tree stays out of sight. Engines before API 1.41 (Docker 20.10) ignore it and are not used.",
        lambda _: "private",
        checks.own_namespace_check("cgroup"),
    ),
    _rule(
        "HostConfig.Ulimits",
        "No core dumps: at 1, unlike at 0, the kernel does not start the host's crash handler either. Bounded"
        " descriptors and file size. Limits are only lowered: raising one needs"
        " CAP_SYS_RESOURCE in the engine, which some hosts lack.",
        _ulimits,
        checks.kernel_check("the list of process 1", "rlimits", _expected_rlimits, except_under=checks.GVISOR),
        checks.inside_check("the list of process 1 as it sees it", _expected_rlimits, checks.rlimits_inside),
        normal_form=normalize.ulimits,
    ),
    _rule(
        "HostConfig.LogConfig",
        "The engine keeps no copy of the output on disk: 10 GB/s of stdout would fill it.",
        lambda _: {"Type": "none", "Config": {}},
        normal_form=lambda value: (value or {}).get("Type"),
    ),
    _rule(
        "HostConfig.RestartPolicy",
        "A container runs once.",
        lambda _: {"Name": "no", "MaximumRetryCount": 0},
        normal_form=lambda value: (value or {}).get("Name"),
    ),
    _rule(
        "HostConfig.AutoRemove",
        "The daemon removes the container after it has observed how it ended.",
        lambda _: False,
    ),
    _rule(
        "HostConfig.Init",
        "Init is process 1, whatever the engine is set to: it collects orphans, and its end is the container's.",
        lambda _: False,
        checks.inside_check("init's process id", lambda _: 1, lambda _, observed: observed.inside["pid"]),
    ),
    _rule(
        "HostConfig.DeviceRequests",
        "The slot's accelerators by name or UUID and no other.",
        _device_requests,
        normal_form=normalize.device_requests,
    ),
    _rule(
        "HostConfig.Devices",
        "The slot's device nodes and no other; no mknod.",
        _device_nodes,
        Check(
            source=Source.KERNEL,
            what="the cgroup's list of devices beside the common ones",
            expected=lambda _: (),
            found=checks.unexpected_device_numbers,
            except_under=checks.GVISOR,
        ),
        checks.inside_check("the list of device nodes nobody asked for", lambda _: (), checks.unexpected_device_nodes),
        checks.inside_check("the list of device nodes that are missing", lambda _: (), checks.missing_device_nodes),
        normal_form=normalize.device_nodes,
    ),
    _rule(
        "HostConfig.Runtime",
        "The runtime the operator chose for this GPU type.",
        lambda spec: spec.runtime,
    ),
    _rule(
        "HostConfig.CgroupParent",
        "All sandboxes of a host lie in one slice of systemd's, which the operator can bound and watch as a whole; left"
        " to the engine where that keeps cgroups without systemd.",
        lambda spec: spec.cgroup_parent,
    ),
)


#: Settings that open a container again. They are never sent; an engine that has them on all the same is not used.
LEFT_OUT: tuple[Rule, ...] = (
    _never_sent("HostConfig.Binds", "An older way to mount; everything that is mounted stands in Mounts."),
    _never_sent("HostConfig.VolumesFrom", "Another container's volumes are a channel to it, and disk."),
    _never_sent("HostConfig.PortBindings", "Nobody calls a sandbox."),
    _never_sent(
        "HostConfig.PidMode",
        "Processes of the host or of other containers stay out of sight and reach.",
        checks.own_namespace_check("pid"),
        normal_form=_private,
    ),
    _never_sent(
        "HostConfig.UTSMode",
        "The host's name is its own.",
        checks.own_namespace_check("uts"),
        normal_form=_private,
    ),
    _never_sent(
        "HostConfig.UsernsMode", "An engine that maps root to nobody of the host is not told to stop doing so."
    ),
    _never_sent(
        "HostConfig.GroupAdd",
        "Groups open device nodes; the worker gets the leased devices' groups, and nobody else any.",
    ),
    _never_sent("HostConfig.DeviceCgroupRules", "A rule opens a whole class of devices; a lease is single nodes."),
    _never_sent("HostConfig.Sysctls", "The kernel's settings are the host's."),
    _never_sent(
        "HostConfig.OomKillDisable",
        "A container at its memory limit would hang instead of ending.",
        normal_form=lambda value: value or None,
    ),
    _never_sent(
        "HostConfig.MaskedPaths",
        "Parts of /proc and /sys that tell or change too much stay covered by the engine.",
        normal_form=normalize.missing_paths("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"),
    ),
    _never_sent(
        "HostConfig.ReadonlyPaths",
        "Parts of /proc that change the host stay read-only by the engine.",
        normal_form=normalize.missing_paths("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"),
    ),
)


def violations(spec: SandboxSpec, observed: Observed) -> list[Difference]:
    """What is not as the spec asked for; empty when all is well. A witness that sees nothing is no difference."""
    return [
        Difference(setting=rule.key, source=check.source, what=check.what, found=found, expected=expected)
        for rule in (*RULES, *LEFT_OUT)
        for check in rule.checks
        if spec.runtime not in check.except_under
        and (found := check.found(spec, observed)) is not NOT_OBSERVED
        and found != (expected := check.expected(spec))
    ]


def attested(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """What the witnesses agree on, as a short record for the result of a run; call it when there are no violations."""
    asked = [(rule, check) for rule in (*RULES, *LEFT_OUT) for check in rule.checks]
    answers = [
        (rule, check)
        for rule, check in asked
        if spec.runtime not in check.except_under and check.found(spec, observed) is not NOT_OBSERVED
    ]
    kernel = observed.kernel
    return {
        "settings": len(RULES) + len(LEFT_OUT),
        "comparisons": {source.value: sum(check.source is source for _, check in answers) for source in Source},
        #: Settings of which a witness that knows them elsewhere could say nothing here.
        "unseen": sorted({f"{rule.key} ({check.source})" for rule, check in asked if (rule, check) not in answers}),
        "policy": normalize.digest(
            json.dumps([[rule.key, normalize.empty_as_none(rule.value(spec))] for rule in RULES], sort_keys=True)
        ),
        "runtime": spec.runtime,
        "cgroup": None if kernel.cgroup_version is NOT_OBSERVED else kernel.cgroup_version,
        "memory_bytes": spec.limits.memory_bytes,
        "pids": spec.limits.pids,
        "cpus": list(observed.inside["cpus"]),
        "mems": None if kernel.mems is NOT_OBSERVED else list(kernel.mems),
        "capabilities": list(CAPABILITIES),
        "network": "none",
        "devices": [path for path in observed.inside["devices"] if path not in checks.COMMON_NODES],
    }
