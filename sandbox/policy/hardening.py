"""The hardening settings of a container in one table: each with its reason, its value, and its checks.

Pure. `hostconfig` builds the engine's request from this table, so a setting outside of it is not sent, and a setting in
it cannot be forgotten. After a container has started, `violations` compares it with its spec: by what the engine, the
kernel and init report. No request is sent into a container that differs. docs/security.md shows the table.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.policy import checks, normalize
from sandbox.policy.checks import Check
from sandbox.policy.observed import NOT_OBSERVED, Observed, Source
from sandbox.spec import DeviceDriver, Devices, SandboxSpec

#: Init needs them to change uids and to kill the processes of those uids, and needs nothing else.
CAPABILITIES = ("KILL", "SETGID", "SETUID")
#: The same as bits of CapEff (capability(7): KILL 5, SETGID 6, SETUID 7).
CAPABILITY_BITS = 1 << 5 | 1 << 6 | 1 << 7
#: Characters of a value that an error shows. A seccomp list would fill pages.
_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One setting: its key in the engine's create request, its reason, its value for a spec, and its checks."""

    #: Path in the body of POST /containers/create.
    key: str
    reason: str
    #: None: the key is not sent.
    value: Callable[[SandboxSpec], Any]
    checks: tuple[Check, ...]
    #: What else sets it, and what to do there; None where nothing outside of the engine does.
    remedy: str | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that report on this setting, in the order of the enumeration."""
        asked = {check.source for check in self.checks}
        return tuple(source for source in Source if source in asked)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that did not take effect as requested."""

    setting: str
    source: Source
    what: str
    actual: Any
    expected: Any
    remedy: str | None = None

    def __str__(self) -> str:
        actual, expected = (_cut(repr(value)) for value in (self.actual, self.expected))
        remedy = "" if self.remedy is None else f" ({self.remedy})"
        return f"{self.setting}: {self.what} ({self.source}) is {actual}, expected {expected}{remedy}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


#: Address families of TCP and UDP: AF_INET, AF_INET6.
_INTERNET = (2, 10)


@functools.cache
def seccomp_profile(*, loopback: bool) -> str:
    """The system call allow-list as JSON. It is sent with every request, so the engine's default has no influence.

    Without the loopback no sockets of TCP and UDP are allowed: their timers work in interrupts, which are charged to no
    process. What is paced, acknowledged or sent again later would slow the judge's control calls unseen. Nor are shared
    locks of files taken there, which keep killed processes from their end.
    """
    text = Path(__file__).with_name("seccomp.json").read_text(encoding="utf-8")
    if loopback:
        return text
    profile = json.loads(text)
    profile["syscalls"] = [
        rule for rule in profile["syscalls"] if rule["names"] != ["socket"] or rule["args"][0]["value"] not in _INTERNET
    ]
    for rule in profile["syscalls"]:
        if rule["names"] == ["flock"] and rule["args"][0]["valueTwo"] == fcntl.LOCK_SH:
            rule |= {"action": "SCMP_ACT_ERRNO", "errnoRet": 0}
    return json.dumps(profile)


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    limits = {"core": 1, "nofile": spec.limits.nofile, "fsize": spec.limits.fsize_bytes, "nice": 0, "rtprio": 0}
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


#: Limits that an engine may add to every container, and the least that harms no submission. With less of one it would
#: die or be refused something, and be blamed for it.
_FURTHER_ULIMITS = {
    "cpu": math.inf,
    "data": math.inf,
    "locks": 0,
    "memlock": 0,
    "msgqueue": 0,
    "rss": 0,
    "rttime": 0,
    "sigpending": 1024,
    "stack": 8 << 20,
}


def _reported_ulimits(spec: SandboxSpec, observed: Observed) -> tuple[Any, ...]:
    """The limits that the engine reports, without further ones that harm nothing."""
    harmless = {**_FURTHER_ULIMITS, "nproc": spec.limits.pids}

    def is_harmless(limit: Mapping[str, Any]) -> bool:
        least = harmless.get(limit["Name"])
        return least is not None and (limit["Soft"] == -1 or limit["Soft"] >= least)

    reported = checks.engine_value(observed, "HostConfig.Ulimits") or ()
    return normalize.ulimits(limit for limit in reported if not is_harmless(limit))


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    return {
        fs.target: (
            f"rw,nosuid,nodev,exec,size={fs.size_bytes},nr_inodes={fs.inodes},"
            f"uid={spec.accounts.uid(fs.owner)},gid={spec.accounts.uid(fs.owner)},mode={fs.mode:04o}"
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


def number_list(values: tuple[int, ...]) -> str:
    """Cores or NUMA nodes as the engine takes them."""
    return ",".join(str(value) for value in sorted(values))


def _rule(
    key: str,
    reason: str,
    value: Callable[[SandboxSpec], Any],
    *more: Check,
    normal_form: Callable[[Any], Any] = normalize.empty_as_none,
) -> Rule:
    """A setting that the engine reports back, with further checks by other sources."""
    repeated = Check(
        source=Source.ENGINE,
        what="its value",
        expected=lambda spec: normal_form(value(spec)),
        actual=lambda _, observed: normal_form(checks.engine_value(observed, key)),
    )
    return Rule(key=key, reason=reason, value=value, checks=(repeated, *more))


def _never_sent(
    key: str, reason: str, *more: Check, normal_form: Callable[[Any], Any] = normalize.empty_as_none
) -> Rule:
    return _rule(key, reason, lambda _: None, *more, normal_form=normal_form)


def _environment_reported(spec: SandboxSpec, observed: Observed) -> tuple[str, ...]:
    """The variables that we set. Init does not pass on the variables that an image adds."""
    ours = {entry.partition("=")[0] for entry in _environment(spec)}
    return normalize.sorted_set(
        entry for entry in checks.engine_value(observed, "Env") or () if entry.partition("=")[0] in ours
    )


def _private(value: str | None) -> str | None:
    """Engines have several names for a private namespace."""
    return None if value in ("", "private") else value


def _pages(size_bytes: int) -> int:
    """A cgroup rounds its limit down to whole pages."""
    return size_bytes // checks.PAGE_BYTES * checks.PAGE_BYTES


def _tmpfs_owners(spec: SandboxSpec) -> dict[str, Any]:
    return {fs.target: ("tmpfs", uid := spec.accounts.uid(fs.owner), uid, fs.mode) for fs in spec.tmpfs}


def _expected_rlimits(spec: SandboxSpec) -> dict[str, tuple[int, int]]:
    return {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in _ulimits(spec)}


RULES: tuple[Rule, ...] = (
    _rule(
        "User",
        "The image must not choose the uid of process 1.",
        lambda _: "0:0",
        checks.inside_check("the uid of process 1", lambda _: 0, lambda _, observed: observed.inside["uid"]),
    ),
    Rule(
        key="Env",
        reason="The container gets no variable of the daemon's environment. Images set NVIDIA_VISIBLE_DEVICES=all,"
        " which would give it every GPU of the host.",
        value=_environment,
        checks=(
            Check(
                source=Source.ENGINE,
                what="the part that we set",
                expected=lambda spec: normalize.sorted_set(_environment(spec)),
                actual=_environment_reported,
            ),
        ),
    ),
    _rule(
        "Healthcheck",
        "An image's health check would run a program of the image as root, beside init.",
        lambda _: {"Test": ["NONE"]},
        normal_form=lambda value: tuple((value or {}).get("Test") or ()),
    ),
    _rule(
        "HostConfig.NetworkMode",
        "Without a network, a submission can send data nowhere, attack no service and install no packages.",
        lambda _: "none",
        checks.own_namespace_check("net"),
        checks.inside_check("the list of interfaces besides lo", lambda _: (), checks.unexpected_interfaces),
    ),
    _rule(
        "HostConfig.ReadonlyRootfs",
        "Interpreter, libraries and harness cannot be replaced. All writing goes to memory of limited size.",
        lambda _: True,
        checks.inside_check(
            "the read-only option of the root",
            lambda _: True,
            lambda _, observed: "ro" in checks.options_of(observed, "/"),
        ),
    ),
    _rule(
        "HostConfig.Tmpfs",
        "These are the only writable places. They are limited in size, count against the memory limit, and hold no"
        " set-uid and device files. They are executable, because Triton and inductor load what they compile.",
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
        "Binds are read-only. They do not include what is mounted below them, and mounts do not propagate.",
        _mounts,
        Check(
            source=Source.ENGINE,
            what="the list of mounts",
            expected=lambda spec: normalize.sorted_set(
                (bind.target, "bind", bind.source, False, "rprivate") for bind in spec.binds
            ),
            actual=checks.reported_mounts,
        ),
        checks.inside_check("the list of binds that are missing or writable", lambda _: (), checks.unprotected_binds),
        checks.inside_check(
            "the list of writable places that the spec does not have", lambda _: (), checks.unexpected_writable_mounts
        ),
        normal_form=normalize.mount_requests,
    ),
    _rule(
        "HostConfig.CapDrop",
        "Root in the container must not have root's power.",
        lambda _: ["ALL"],
        checks.inside_check(
            "the bounding set", lambda _: CAPABILITY_BITS, lambda _, observed: int(observed.inside["cap_bnd"], 16)
        ),
        normal_form=normalize.capabilities,
    ),
    _rule(
        "HostConfig.CapAdd",
        "Init needs these to change to the uids of judge and worker, and to kill their processes.",
        lambda _: list(CAPABILITIES),
        checks.inside_check(
            "the effective set", lambda _: CAPABILITY_BITS, lambda _, observed: int(observed.inside["cap_eff"], 16)
        ),
        normal_form=normalize.capabilities,
    ),
    _rule(
        "HostConfig.SecurityOpt",
        "no-new-privileges makes every set-uid program of the image or of /usr harmless. The seccomp list allows no"
        " ptrace, bpf, io_uring, userfaultfd, keyrings, namespaces, mounts or rare socket families.",
        lambda spec: ["no-new-privileges", f"seccomp={seccomp_profile(loopback=spec.boot.loopback)}"],
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
        "A privileged container would not be isolated. The value is sent, so that no default decides.",
        lambda _: False,
    ),
    _rule(
        "HostConfig.PidsLimit",
        "Limits a fork bomb to this number of processes and threads.",
        lambda spec: spec.limits.pids,
        checks.kernel_check("the cgroup's limit of processes", "pids", lambda spec: spec.limits.pids),
    ),
    _rule(
        "HostConfig.Memory",
        "Limits the memory that a submission can use. Memory file systems count.",
        lambda spec: spec.limits.memory_bytes,
        checks.kernel_check("the cgroup's memory limit", "memory_bytes", lambda spec: _pages(spec.limits.memory_bytes)),
    ),
    _rule(
        "HostConfig.MemorySwap",
        "The limit of memory and swap equals the memory limit, so there is no swap. Swapping would slow down the"
        " whole host. Some kernels with cgroup version 1 count swap only if booted with swapaccount=1.",
        lambda spec: spec.limits.memory_bytes,
        checks.kernel_check(
            "the cgroup's limit of memory and swap",
            "memory_and_swap_bytes",
            lambda spec: _pages(spec.limits.memory_bytes),
        ),
    ),
    _rule(
        "HostConfig.OomScoreAdj",
        "If the host itself runs out of memory, the kernel kills sandboxes before the daemon and the database.",
        lambda _: 100,
        checks.kernel_check("the score of process 1", "oom_score_adj", lambda _: 100),
    ),
    _rule(
        "HostConfig.CpusetCpus",
        "Exactly the slot's cores, so that other slots are not disturbed and times are comparable.",
        lambda spec: number_list(spec.limits.cpus),
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
        "Only memory of the device's NUMA node.",
        lambda spec: None if spec.limits.mems is None else number_list(spec.limits.mems),
        Check(
            source=Source.KERNEL,
            what="the cgroup's list",
            expected=lambda spec: None if spec.limits.mems is None else normalize.sorted_set(spec.limits.mems),
            actual=lambda spec, observed: None if spec.limits.mems is None else observed.kernel.mems,
        ),
        normal_form=normalize.number_list,
    ),
    _rule(
        "HostConfig.IpcMode",
        "System V objects and /dev/shm are not shared with other containers or the host.",
        lambda _: "private",
        checks.own_namespace_check("ipc"),
    ),
    _rule(
        "HostConfig.ShmSize",
        "Shared memory is limited in size, like every other writable place.",
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
        "Hides the host's cgroup tree. Engines before API 1.41 (Docker 20.10) ignore it and are not used.",
        lambda _: "private",
        checks.own_namespace_check("cgroup"),
    ),
    Rule(
        key="HostConfig.Ulimits",
        reason="No core dumps: at limit 0 the kernel would start the host's crash handler, at 1 it does not."
        " Descriptors and file sizes are limited, and nobody raises a priority. Limits are only lowered, because"
        " raising one needs CAP_SYS_RESOURCE in the engine, which some hosts lack. Limits that an engine adds to every"
        " container may stay where they are so high that no submission notices.",
        value=_ulimits,
        checks=(
            Check(
                source=Source.ENGINE,
                what="its value",
                expected=lambda spec: normalize.ulimits(_ulimits(spec)),
                actual=_reported_ulimits,
            ),
            checks.kernel_check("the list of process 1", "rlimits", _expected_rlimits, except_under=checks.GVISOR),
            checks.inside_check("the list of process 1 as it observes it", _expected_rlimits, checks.rlimits_inside),
        ),
        remedy="the engine's daemon.json sets others as default-ulimits: remove those from it, and restart the engine",
    ),
    _rule(
        "HostConfig.LogConfig",
        "The engine must not copy the output to disk: a submission can write 10 GB/s to stdout.",
        lambda _: {"Type": "none", "Config": {}},
        normal_form=lambda value: (value or {}).get("Type"),
    ),
    _rule(
        "HostConfig.RestartPolicy",
        "A container runs only once.",
        lambda _: {"Name": "no", "MaximumRetryCount": 0},
        normal_form=lambda value: (value or {}).get("Name"),
    ),
    _rule(
        "HostConfig.AutoRemove",
        "The daemon removes the container, after it has read how it ended.",
        lambda _: False,
    ),
    _rule(
        "HostConfig.Init",
        "Our init is process 1, whatever the engine's default is. It reaps orphans, and its end ends the container.",
        lambda _: False,
        checks.inside_check("the process id of init", lambda _: 1, lambda _, observed: observed.inside["pid"]),
    ),
    _rule(
        "HostConfig.DeviceRequests",
        "Only the slot's accelerators, by name or UUID.",
        _device_requests,
        normal_form=normalize.device_requests,
    ),
    _rule(
        "HostConfig.Devices",
        "Only the slot's device nodes. No other node can be created.",
        _device_nodes,
        Check(
            source=Source.KERNEL,
            what="the cgroup's list of devices beside the common ones",
            expected=lambda _: (),
            actual=checks.unexpected_device_numbers,
            except_under=checks.GVISOR,
        ),
        checks.inside_check(
            "the list of device nodes that the spec does not have", lambda _: (), checks.unexpected_device_nodes
        ),
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
        "All sandboxes of a host are in one systemd slice, which the operator can limit and watch as a whole. An"
        " engine that manages cgroups without systemd chooses the place itself.",
        lambda spec: spec.cgroup_parent,
    ),
)


#: Settings that would open the container. They are never sent. An engine that has them set nevertheless is not used.
LEFT_OUT: tuple[Rule, ...] = (
    _never_sent("HostConfig.Binds", "An older way to mount. All mounts are listed in Mounts."),
    _never_sent("HostConfig.VolumesFrom", "Another container's volumes would be a channel to it, and writable disk."),
    _never_sent("HostConfig.PortBindings", "A sandbox accepts no connections."),
    _never_sent(
        "HostConfig.PidMode",
        "A shared PID namespace would expose processes of the host or of other containers.",
        checks.own_namespace_check("pid"),
        normal_form=_private,
    ),
    _never_sent(
        "HostConfig.UTSMode",
        "A shared UTS namespace would share the host's name with the container.",
        checks.own_namespace_check("uts"),
        normal_form=_private,
    ),
    _never_sent(
        "HostConfig.UsernsMode", "It would turn off an engine's mapping of root to an unprivileged user of the host."
    ),
    _never_sent(
        "HostConfig.GroupAdd",
        "Groups open device nodes. Init gives judge and worker the groups of the leased devices, and no others.",
    ),
    _never_sent(
        "HostConfig.DeviceCgroupRules", "A rule would open a whole class of devices. A lease is for single nodes."
    ),
    _never_sent("HostConfig.Sysctls", "A container must not change the kernel's settings."),
    _never_sent(
        "HostConfig.OomKillDisable",
        "A container at its memory limit would hang instead of being killed.",
        normal_form=lambda value: value or None,
    ),
    _never_sent(
        "HostConfig.MaskedPaths",
        "Parts of /proc and /sys reveal or change too much. The engine's own list, which hides them, must stay.",
        normal_form=normalize.missing_paths("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"),
    ),
    _never_sent(
        "HostConfig.ReadonlyPaths",
        "Parts of /proc change the host. The engine's own list, which makes them read-only, must stay.",
        normal_form=normalize.missing_paths("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"),
    ),
)


def violations(spec: SandboxSpec, observed: Observed) -> list[Difference]:
    """The differences between a container and its spec. A value that was not observed is no difference."""
    return [
        Difference(
            setting=rule.key,
            source=check.source,
            what=check.what,
            actual=actual,
            expected=expected,
            remedy=rule.remedy,
        )
        for rule in (*RULES, *LEFT_OUT)
        for check in rule.checks
        if spec.runtime not in check.except_under
        and (actual := check.actual(spec, observed)) is not NOT_OBSERVED
        and actual != (expected := check.expected(spec))
    ]


def attested(spec: SandboxSpec, observed: Observed) -> dict[str, Any]:
    """A short record of what was checked, for a run's result. Call it only if there are no violations."""
    asked = [(rule, check) for rule in (*RULES, *LEFT_OUT) for check in rule.checks]
    answers = [
        (rule, check)
        for rule, check in asked
        if spec.runtime not in check.except_under and check.actual(spec, observed) is not NOT_OBSERVED
    ]
    kernel = observed.kernel
    return {
        "settings": len(RULES) + len(LEFT_OUT),
        "comparisons": {source.value: sum(check.source is source for _, check in answers) for source in Source},
        #: Settings with a check whose source could not report on this host.
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
