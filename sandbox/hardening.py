"""Every hardening setting of a container, in one table, each with its reason; and the check that they took effect.

Pure. `hostconfig` builds the engine's request from this table, so nothing is enforced that is not listed here, and
nothing listed here can be forgotten. `violations` compares what the steward sees of its box with what was asked for;
the engine starts nothing in a box that differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.spec import DeviceDriver, Devices, SandboxSpec

#: Changing uid and killing what changed uid is all the steward does as root.
CAPABILITIES = ("KILL", "SETGID", "SETUID")
#: The same as bits of CapEff (capability(7): KILL 5, SETGID 6, SETUID 7).
CAPABILITY_BITS = 1 << 5 | 1 << 6 | 1 << 7


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One setting: where it stands in the engine's create request, why, and its value for a spec."""

    #: Path in the body of POST /containers/create.
    key: str
    reason: str
    #: None leaves the key out.
    value: Callable[[SandboxSpec], Any]


@functools.cache
def seccomp_profile() -> str:
    """The system call allow-list as JSON text; it travels with every request, so the engine's default cannot differ."""
    return Path(__file__).with_name("seccomp.json").read_text(encoding="utf-8")


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    limits = {"core": 0, "nofile": spec.limits.nofile, "fsize": spec.limits.fsize_bytes}
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


RULES: tuple[Rule, ...] = (
    Rule(
        key="User",
        reason="The image must not choose who runs process 1.",
        value=lambda _: "0:0",
    ),
    Rule(
        key="Env",
        reason="Nothing of the daemon's environment gets in. Images set NVIDIA_VISIBLE_DEVICES=all, which hands out"
        " every GPU of the host unless it is overridden.",
        value=_environment,
    ),
    Rule(
        key="Healthcheck",
        reason="An image's health check would run a program of the image beside the steward, as root.",
        value=lambda _: {"Test": ["NONE"]},
    ),
    Rule(
        key="HostConfig.NetworkMode",
        reason="No network: nothing to exfiltrate to, nothing to attack, no packages to install at run time.",
        value=lambda _: "none",
    ),
    Rule(
        key="HostConfig.ReadonlyRootfs",
        reason="Interpreter, libraries and harness cannot be replaced; what is written lies in sized memory.",
        value=lambda _: True,
    ),
    Rule(
        key="HostConfig.Tmpfs",
        reason="The only writable places: sized, counted against the memory limit, without set-uid and device files,"
        " executable because Triton and inductor load what they compile.",
        value=_tmpfs,
    ),
    Rule(
        key="HostConfig.Mounts",
        reason="Binds are read-only, without what is mounted below them and without propagation.",
        value=_mounts,
    ),
    Rule(
        key="HostConfig.CapDrop",
        reason="Root in the container is no root.",
        value=lambda _: ["ALL"],
    ),
    Rule(
        key="HostConfig.CapAdd",
        reason="The steward changes to the uids of judge and worker, and kills their processes. No more.",
        value=lambda _: list(CAPABILITIES),
    ),
    Rule(
        key="HostConfig.SecurityOpt",
        reason="no-new-privileges makes every set-uid program of the image or of /usr harmless; the seccomp list leaves"
        " out ptrace, bpf, io_uring, userfaultfd, keyrings, namespaces, mounts and exotic sockets.",
        value=lambda _: ["no-new-privileges", f"seccomp={seccomp_profile()}"],
    ),
    Rule(
        key="HostConfig.Privileged",
        reason="Said, not left to a default.",
        value=lambda _: False,
    ),
    Rule(
        key="HostConfig.PidsLimit",
        reason="A fork bomb ends at this number of processes and threads.",
        value=lambda spec: spec.limits.pids,
    ),
    Rule(
        key="HostConfig.Memory",
        reason="A memory bomb ends here; memory file systems count.",
        value=lambda spec: spec.limits.memory_bytes,
    ),
    Rule(
        key="HostConfig.MemorySwap",
        reason="Memory plus swap equals memory: no swap, or a bomb would slow down the whole host.",
        value=lambda spec: spec.limits.memory_bytes,
    ),
    Rule(
        key="HostConfig.OomScoreAdj",
        reason="When the host itself runs out of memory, a sandbox goes before the daemon and the database.",
        value=lambda _: 100,
    ),
    Rule(
        key="HostConfig.CpusetCpus",
        reason="Exactly the slot's cores: neighbours are not disturbed and timings are comparable.",
        value=lambda spec: _numbers(spec.limits.cpus),
    ),
    Rule(
        key="HostConfig.CpusetMems",
        reason="Memory of the device's NUMA node.",
        value=lambda spec: None if spec.limits.mems is None else _numbers(spec.limits.mems),
    ),
    Rule(
        key="HostConfig.IpcMode",
        reason="System V objects and /dev/shm are the container's own.",
        value=lambda _: "private",
    ),
    Rule(
        key="HostConfig.ShmSize",
        reason="Shared memory is sized like every other writable place.",
        value=lambda spec: spec.limits.shm_bytes,
    ),
    Rule(
        key="HostConfig.CgroupnsMode",
        reason="The host's cgroup tree stays out of sight (engines before API 1.41 ignore it).",
        value=lambda _: "private",
    ),
    Rule(
        key="HostConfig.Ulimits",
        reason="No core dumps; bounded descriptors and file size. Limits are only lowered: raising one needs"
        " CAP_SYS_RESOURCE in the engine, which some hosts lack.",
        value=_ulimits,
    ),
    Rule(
        key="HostConfig.LogConfig",
        reason="The engine keeps no copy of the output on disk: 10 GB/s of stdout would fill it.",
        value=lambda _: {"Type": "none", "Config": {}},
    ),
    Rule(
        key="HostConfig.RestartPolicy",
        reason="A container runs once.",
        value=lambda _: {"Name": "no", "MaximumRetryCount": 0},
    ),
    Rule(
        key="HostConfig.AutoRemove",
        reason="The daemon removes the container after it has seen how it ended.",
        value=lambda _: False,
    ),
    Rule(
        key="HostConfig.DeviceRequests",
        reason="The slot's accelerators by name or UUID and no other.",
        value=_device_requests,
    ),
    Rule(
        key="HostConfig.Devices",
        reason="The slot's device nodes and no other; no mknod.",
        value=_device_nodes,
    ),
    Rule(
        key="HostConfig.Runtime",
        reason="The runtime the operator chose for this GPU type.",
        value=lambda spec: spec.runtime,
    ),
)


def violations(spec: SandboxSpec, facts: Mapping[str, Any]) -> list[str]:
    """What the steward sees that is not what the spec asked for; empty when all is well.

    gVisor (`runsc`) filters system calls outside the container, so no seccomp mode shows inside.
    """
    mounts = {mount["target"]: mount for mount in facts["mounts"]}
    expected: dict[str, tuple[Any, Any]] = {
        "uid": (facts["uid"], 0),
        "effective capabilities": (int(facts["cap_eff"], 16), CAPABILITY_BITS),
        "bounding capabilities": (int(facts["cap_bnd"], 16), CAPABILITY_BITS),
        "no_new_privs": (facts["no_new_privs"], "1"),
        "cpus": (tuple(facts["cpus"]), tuple(sorted(spec.limits.cpus))),
        "network interfaces besides lo": ([name for name in facts["interfaces"] if not _is_idle(name)], []),
        "root file system read-only": (_option(mounts, "/", "ro"), True),
    }
    if spec.runtime != "runsc":
        expected["seccomp mode"] = (facts["seccomp"], "2")
    for bind in spec.binds:
        expected[f"bind {bind.target} read-only"] = (_option(mounts, bind.target, "ro"), True)
    for fs in spec.tmpfs:
        mount = mounts.get(fs.target, {})
        # Some runtimes give a tmpfs the mode of the directory it covers, whatever was asked for.
        seen = (mount.get("type"), mount.get("uid"), mount.get("gid"), mount.get("mode"))
        expected[f"type, uid, gid, mode of {fs.target}"] = (seen, ("tmpfs", fs.uid, fs.gid, fs.mode))
        expected[f"tmpfs {fs.target} nosuid"] = (_option(mounts, fs.target, "nosuid"), True)
    return [
        f"{what} is {found!r}, expected {wanted!r}" for what, (found, wanted) in expected.items() if found != wanted
    ]


def _is_idle(name: str) -> bool:
    """Tunnel devices that the kernel puts into every network namespace, down and without an address."""
    return name in {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}


def _option(mounts: Mapping[str, Mapping[str, Any]], target: str, option: str) -> bool:
    return target in mounts and option in mounts[target]["options"].split(",")
