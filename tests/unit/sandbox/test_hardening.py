"""The checks of a container against its spec, without an engine: every check can fail."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.host import kernel_view as kernel_module
from sandbox.host.cgroup import CgroupReader
from sandbox.host.kernel_view import read_kernel_view
from sandbox.policy import hardening
from sandbox.policy.hostconfig import create_body
from sandbox.policy.observed import NAMESPACES, NOT_OBSERVED, KernelView, Observed, Source
from sandbox.spec import DeviceDriver, Devices, SandboxSpec
from tests.unit.sandbox.samples import FULL

SPEC = replace(FULL, runtime="runc")
LEASED = ["c 226:128 rw", "c 511:0 rw"]
_PRIORITIES = {"nice": [0, 0], "rtprio": [0, 0]}
_CHANNEL = "nvidia-caps-imex-channels/channel0"
COMMON = ["c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rwm", "c 10:200 rwm"]


def inside(spec: SandboxSpec = SPEC, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 facts of any type
    """What init reports of a container that matches the spec, except for the changes."""

    def mount(target: str, options: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 fields of a mount
        return {"target": target, "type": "ext4", "options": options, "mode": 0o755, "uid": 0, "gid": 0, **more}

    nodes = spec.devices.ids if spec.devices is not None and spec.devices.driver is DeviceDriver.NODES else ()
    return {
        "uid": 0,
        "pid": 1,
        "cap_eff": "00000000000000e0",
        "cap_bnd": "00000000000000e0",
        "no_new_privs": "1",
        "seccomp": "2",
        "cpus": [1, 3],
        "interfaces": ["lo", "sit0"],
        "limits": {"core": [1, 1], "nofile": [512, 512], "fsize": [1 << 30, 1 << 30], **_PRIORITIES},
        "mounts": [
            mount("/", "ro,relatime"),
            mount("/proc", "rw,nosuid", type="proc"),
            mount("/dev", "rw,nosuid", type="tmpfs"),
            mount("/proc/keys", "rw,nosuid", type="tmpfs"),
            mount("/dev/shm", "rw,nosuid,nodev,noexec", type="tmpfs", size_bytes=spec.limits.shm_bytes),
            *(mount(bind.target, "ro") for bind in spec.binds),
            *(
                mount(
                    fs.target,
                    "rw,nosuid,nodev",
                    type="tmpfs",
                    mode=fs.mode,
                    uid=spec.accounts.uid(fs.owner),
                    gid=spec.accounts.uid(fs.owner),
                    size_bytes=fs.size_bytes,
                    inodes=fs.inodes,
                )
                for fs in spec.tmpfs
            ),
        ],
        "devices": ["/dev/null", "/dev/zero", *nodes],
        **changes,
    }


def engine(spec: SandboxSpec = SPEC) -> dict[str, Any]:
    """An answer to `inspect` that repeats the request, as engines do."""
    body = create_body(spec, owner="us")
    mounts = [
        {"Type": "bind", "Source": bind.source, "Destination": bind.target, "RW": False, "Propagation": "rprivate"}
        for bind in spec.binds
    ]
    return {"Config": body, "HostConfig": body["HostConfig"], "Mounts": mounts}


def kernel(spec: SandboxSpec = SPEC, **changes: Any) -> KernelView:  # noqa: ANN401 fields of Kernel
    """What the kernel reports of a container that matches the spec, except for the changes."""
    found = KernelView(
        cgroup_version=1,
        memory_bytes=spec.limits.memory_bytes,
        memory_and_swap_bytes=spec.limits.memory_bytes,
        pids=spec.limits.pids,
        cpus=(1, 3),
        mems=(0,),
        devices=(*COMMON, *LEASED),
        rlimits={"core": (1, 1), "nofile": (512, 512), "fsize": (1 << 30, 1 << 30), "nice": (0, 0), "rtprio": (0, 0)},
        oom_score_adj=100,
        shared_namespaces=(),
    )
    return replace(found, **changes)


def observed(
    spec: SandboxSpec = SPEC,
    *,
    says: dict[str, Any] | None = None,
    counts: KernelView | None = None,
    **facts: Any,  # noqa: ANN401 facts of any type
) -> Observed:
    """What three sources report that agree, except for the changes."""
    return Observed(engine=says or engine(spec), kernel=counts or kernel(spec), inside=inside(spec, **facts))


def test_a_box_as_asked_for_has_no_violations() -> None:
    """Three sources that agree. gVisor shows no seccomp mode, and counts cores from 0."""
    assert hardening.violations(SPEC, observed()) == []
    gvisor = KernelView(rlimits={"core": (math.inf, math.inf)}, shared_namespaces=("cgroup", "ipc"))
    assert hardening.violations(FULL, observed(FULL, counts=gvisor, seccomp="0", cpus=[0, 1])) == []


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"cap_eff": "00000000a80425fb"}, "HostConfig.CapAdd"),
        ({"cap_bnd": "000001ffffffffff"}, "HostConfig.CapDrop"),
        ({"no_new_privs": "0"}, "HostConfig.SecurityOpt"),
        ({"seccomp": "0"}, "HostConfig.SecurityOpt"),
        ({"cpus": [0, 1, 2, 3]}, "HostConfig.CpusetCpus"),
        ({"interfaces": ["eth0", "lo"]}, "HostConfig.NetworkMode"),
        ({"uid": 1000}, "User"),
        ({"pid": 7}, "HostConfig.Init"),
        (
            {"limits": {"core": [1, 1], "nofile": [512, 4096], "fsize": [1 << 30, 1 << 30], **_PRIORITIES}},
            "HostConfig.Ulimits",
        ),
        ({"devices": ["/dev/null", "/dev/kfd", "/dev/dri/renderD128", "/dev/sda"]}, "HostConfig.Devices"),
        ({"devices": ["/dev/null", "/dev/kfd"]}, "HostConfig.Devices"),
    ],
)
def test_what_init_sees_otherwise_is_told(change: dict[str, Any], setting: str) -> None:
    """One fact that is not as asked for is one difference, with its setting, what was found and what was expected."""
    (difference,) = hardening.violations(SPEC, observed(**change))
    assert (difference.setting, difference.source) == (setting, Source.INSIDE)
    assert f"is {difference.actual!r}, expected {difference.expected!r}" in str(difference)


@pytest.mark.parametrize(
    ("target", "change", "setting"),
    [
        ("/", {"options": "rw"}, "HostConfig.ReadonlyRootfs"),
        ("/usr", {"options": "rw"}, "HostConfig.Mounts"),
        ("/usr", {"target": "/elsewhere"}, "HostConfig.Mounts"),
        ("/judge", {"mode": 0o755}, "HostConfig.Tmpfs"),
        ("/judge", {"uid": 10002}, "HostConfig.Tmpfs"),
        ("/work", {"options": "rw,nodev"}, "HostConfig.Tmpfs"),
        ("/work", {"options": "rw,nosuid,nodev,noexec"}, "HostConfig.Tmpfs"),
        ("/work", {"size_bytes": 2 << 20}, "HostConfig.Tmpfs"),
        ("/work", {"inodes": 0}, "HostConfig.Tmpfs"),
        ("/work", {"type": "ext4"}, "HostConfig.Tmpfs"),
        ("/dev/shm", {"size_bytes": 64 << 20}, "HostConfig.ShmSize"),
    ],
)
def test_a_mount_that_is_otherwise_is_told(target: str, change: dict[str, Any], setting: str) -> None:
    """Owner, mode, size, number of files and options of every mount count, whatever the engine says."""
    facts = inside()
    next(mount for mount in facts["mounts"] if mount["target"] == target).update(change)
    found = hardening.violations(SPEC, observed(**facts))
    assert {(each.setting, each.source) for each in found} == {(setting, Source.INSIDE)} or target in ("/", "/usr")
    assert setting in {each.setting for each in found}


@pytest.mark.parametrize(
    ("name", "value", "is_harmless"),
    [
        ("memlock", -1, True),
        ("memlock", 1 << 16, True),
        ("stack", 1 << 26, True),
        ("stack", 1 << 20, False),
        ("nproc", 1 << 16, True),
        ("nproc", 2, False),
        ("sigpending", 4096, True),
        ("sigpending", 0, False),
        ("cpu", -1, True),
        ("cpu", 3600, False),
        ("data", 1 << 40, False),
        ("a name of the future", -1, False),
    ],
)
def test_limits_that_an_engine_adds_may_stay_where_no_submission_notices(
    name: str, value: int, is_harmless: bool
) -> None:
    """Of others the difference says where they come from: else a submission would be blamed for them."""
    says = engine()
    says["HostConfig"]["Ulimits"].append({"Name": name, "Soft": value, "Hard": value})
    differences = hardening.violations(SPEC, observed(says=says))
    assert [difference.setting for difference in differences] == ([] if is_harmless else ["HostConfig.Ulimits"])
    assert all("daemon.json sets others as default-ulimits" in str(difference) for difference in differences)


def test_a_writable_place_outside_of_the_spec_is_reported() -> None:
    """A volume or a memory file system too many, but not what the runtime itself covers /proc and /dev with.

    An engine that answers with a megabyte does not make an error of a megabyte.
    """
    facts, says = inside(), engine()
    facts["mounts"].append({**facts["mounts"][0], "target": "/data", "options": "rw"})
    (difference,) = hardening.violations(SPEC, observed(**facts))
    assert difference.actual == ("/data",)
    says["HostConfig"] = {**says["HostConfig"], "Runtime": "x" * 1_000_000}
    (difference,) = hardening.violations(SPEC, observed(says=says))
    assert len(str(difference)) < 1000


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"memory_bytes": math.inf}, "HostConfig.Memory"),
        ({"memory_and_swap_bytes": math.inf}, "HostConfig.MemorySwap"),
        ({"pids": math.inf}, "HostConfig.PidsLimit"),
        ({"cpus": (0, 1, 3)}, "HostConfig.CpusetCpus"),
        ({"mems": (0, 1)}, "HostConfig.CpusetMems"),
        ({"oom_score_adj": 0}, "HostConfig.OomScoreAdj"),
        ({"rlimits": {"core": (0, 0), "nofile": (512, 512), "fsize": (math.inf, math.inf)}}, "HostConfig.Ulimits"),
        ({"shared_namespaces": ("net",)}, "HostConfig.NetworkMode"),
        ({"shared_namespaces": ("ipc",)}, "HostConfig.IpcMode"),
        ({"shared_namespaces": ("pid",)}, "HostConfig.PidMode"),
        ({"shared_namespaces": ("uts",)}, "HostConfig.UTSMode"),
        ({"shared_namespaces": ("cgroup",)}, "HostConfig.CgroupnsMode"),
        ({"devices": ("a *:* rwm",)}, "HostConfig.Devices"),
        ({"devices": (*COMMON, *LEASED, "b 8:0 r")}, "HostConfig.Devices"),
    ],
)
def test_what_the_kernel_counts_otherwise_is_told(change: dict[str, Any], setting: str) -> None:
    """Limits that are not set, cores and nodes too many, namespaces of the host, devices that were not leased."""
    (difference,) = hardening.violations(SPEC, observed(counts=kernel(**change)))
    assert (difference.setting, difference.source) == (setting, Source.KERNEL)


def test_a_source_that_reports_nothing_is_no_difference_but_stands_in_the_record() -> None:
    """An engine in another PID namespace: the kernel reports nothing, and the result lists the settings concerned."""
    blind = observed(counts=KernelView())
    assert hardening.violations(SPEC, blind) == []
    record = hardening.attested(SPEC, blind)
    assert record["comparisons"]["kernel"] == 0
    assert {"HostConfig.Memory (kernel)", "HostConfig.PidMode (kernel)"} <= set(record["unseen"])
    assert hardening.attested(SPEC, observed())["unseen"] == []


@pytest.mark.parametrize(
    ("driver", "leased", "nodes", "foreign"),
    [
        (DeviceDriver.NVIDIA, "GPU-1", "nvidia3 nvidiactl nvidia-uvm nvidia-uvm-tools", ""),
        (DeviceDriver.NVIDIA, "GPU-1", "nvidia0 nvidia1 nvidiactl", "nvidia0 nvidia1"),
        (DeviceDriver.NVIDIA, "GPU-1", f"nvidia0 nvidiactl {_CHANNEL}", _CHANNEL),
        # Where nvidia-drm is loaded, each device has three nodes.
        (DeviceDriver.CDI, "nvidia.com/gpu=0", "nvidia0 dri/card1 dri/renderD128 nvidiactl", ""),
        (DeviceDriver.CDI, "nvidia.com/gpu=0", "nvidia0 dri/card1 dri/card2", "dri/card1 dri/card2"),
        (DeviceDriver.CDI, "amd.com/gpu=1", "kfd dri/card1 dri/renderD129", ""),
        (DeviceDriver.CDI, "amd.com/gpu=1", "kfd dri/renderD128 sda", "sda"),
        (DeviceDriver.CDI, "amd.com/gpu=1", "kfd dri/renderD128 dri/renderD129", "dri/renderD128 dri/renderD129"),
    ],
)
def test_no_more_accelerators_than_leased_are_inside(
    driver: DeviceDriver, leased: str, nodes: str, foreign: str
) -> None:
    """Where the engine's own machinery picks the nodes: one per leased device, its driver's helpers, and no other."""
    spec = replace(SPEC, devices=Devices(driver=driver, ids=(leased,)))
    devices = [f"/dev/{node}" for node in ("null", *nodes.split())]
    found = hardening.violations(spec, observed(spec, counts=kernel(devices=("a *:* rwm",)), devices=devices))
    assert [each.actual for each in found] == ([tuple(f"/dev/{node}" for node in foreign.split())] if foreign else [])


def test_where_the_cdi_spec_is_known_only_its_nodes_are_inside() -> None:
    """One accelerator of the right number is not enough: it must be the leased one."""
    nodes = ("/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/nvidiactl", "/dev/nvidia-uvm")
    spec = replace(SPEC, devices=Devices(driver=DeviceDriver.CDI, ids=("nvidia.com/gpu=0",), nodes=nodes))
    unseen = kernel(devices=("a *:* rwm",))
    assert hardening.violations(spec, observed(spec, counts=unseen, devices=["/dev/null", *nodes])) == []
    (difference,) = hardening.violations(
        spec, observed(spec, counts=unseen, devices=["/dev/null", "/dev/nvidia1", "/dev/nvidiactl"])
    )
    assert difference.actual == ("/dev/nvidia1",)


# --- what the kernel reports, from files ---------------------------------------------------------------------------


def _process(root: Path, **files: str) -> None:
    """A /proc with a process 7, whose namespaces are its own but for the user's."""
    for pid, base in ((7, "4"), ("self", "5")):
        names = root / str(pid) / "ns"
        names.mkdir(parents=True)
        for name in NAMESPACES:
            (names / name).symlink_to(f"{name}:[{base}]")
    for name, text in files.items():
        (root / "7" / name).write_text(text, encoding="ascii")


_LIMITS_FILE = """Limit                     Soft Limit           Hard Limit           Units
Max file size             1048576              unlimited            bytes
Max core file size        0                    0                    bytes
Max open files            512                  1024                 files
Max nice priority         0                    0
Max realtime priority     0                    99
"""


def _tree(root: Path, **files: str) -> CgroupReader:
    for name, text in files.items():
        (root / name).write_text(text, encoding="ascii")
    return CgroupReader({"": root})


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up /proc."""
    root = tmp_path / "proc"
    monkeypatch.setattr(kernel_module, "PROC", root)
    return root


def test_version_2_limits_are_read(tmp_path: Path, proc: Path) -> None:
    """Memory and swap are apart there; lists are the effective ones; the devices' program cannot be read.

    `max` is a statement; a file that is not there is none.
    """
    unlimited = _tree(tmp_path, **dict.fromkeys(("memory.max", "memory.swap.max", "pids.max"), "max\n"))
    _process(proc)
    found = read_kernel_view(7, unlimited)
    assert (found.memory_bytes, found.memory_and_swap_bytes, found.pids) == (math.inf,) * 3
    assert (found.cpus, found.oom_score_adj, found.rlimits) == (NOT_OBSERVED,) * 3
    (proc / "7" / "limits").write_text(_LIMITS_FILE, encoding="ascii")
    (proc / "7" / "oom_score_adj").write_text("100\n", encoding="ascii")
    limits = {"memory.max": "1073741824\n", "memory.swap.max": "0\n", "pids.max": "100\n"}
    cores = {"cpuset.cpus.effective": "1,3-4\n", "cpuset.mems.effective": "0\n"}
    found = read_kernel_view(7, _tree(tmp_path, **limits, **cores))
    assert (found.cgroup_version, found.memory_bytes, found.memory_and_swap_bytes) == (2, 1 << 30, 1 << 30)
    assert (found.pids, found.cpus, found.mems) == (100, (1, 3, 4), (0,))
    assert found.devices is NOT_OBSERVED
    limited = {"fsize": (1 << 20, math.inf), "core": (0, 0), "nofile": (512, 1024), "nice": (0, 0), "rtprio": (0, 99)}
    assert found.rlimits == limited
    assert (found.oom_score_adj, found.shared_namespaces) == (100, ())


def test_namespaces_of_the_host_are_told(tmp_path: Path, proc: Path) -> None:
    """A namespace that process 1 shares with this process is named."""
    _process(proc)
    (proc / "7" / "ns" / "ipc").unlink()
    (proc / "7" / "ns" / "ipc").symlink_to("ipc:[5]")
    assert read_kernel_view(7, _tree(tmp_path)).shared_namespaces == ("ipc",)


def test_a_strangers_process_is_not_looked_at(proc: Path) -> None:
    """Where the container's cgroup was not found, its pid belongs to another process."""
    _process(proc, limits=_LIMITS_FILE, oom_score_adj="-1000\n")
    assert read_kernel_view(7, CgroupReader({})) == KernelView()
