"""The spec as the engine's create request: every row of the hardening table counts."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.inside.boot import parse_boot
from sandbox.policy import hardening
from sandbox.policy.hostconfig import boot_document, create_body, spec_errors
from sandbox.spec import Bind, DeviceDriver, Devices, SandboxSpec
from tests.unit.sandbox.samples import FULL

_ABSENT = object()


def _at(body: dict[str, Any], key: str) -> Any:  # noqa: ANN401 whatever stands there
    place: Any = body
    for part in key.split("."):
        place = place.get(part, _ABSENT) if isinstance(place, dict) else _ABSENT
    return place


@pytest.mark.parametrize("rule", hardening.RULES, ids=lambda rule: rule.key)
def test_every_rule_sets_its_key_and_nothing_else_does(rule: hardening.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule its key has its value; without it the key is not there at all."""
    assert _at(create_body(FULL, owner="o"), rule.key) == rule.value(FULL)
    monkeypatch.setattr(hardening, "RULES", tuple(other for other in hardening.RULES if other is not rule))
    assert _at(create_body(FULL, owner="o"), rule.key) is _ABSENT


def test_the_request_says_what_it_must() -> None:
    """The settings that isolation stands on, as literals. Whatever the spec's labels say, reaping depends on ours."""
    body = create_body(replace(FULL, labels={**FULL.labels, "kernel-runner.owner": "someone"}), owner="host-1")
    host = body["HostConfig"]
    literals: dict[str, object] = {"NetworkMode": "none", "ReadonlyRootfs": True, "Privileged": False}
    literals |= {"CapDrop": ["ALL"], "Memory": 1 << 30, "MemorySwap": 1 << 30, "PidsLimit": 100, "Runtime": "runsc"}
    literals |= {"CpusetCpus": "1,3", "CpusetMems": "0", "IpcMode": "private", "CgroupnsMode": "private"}
    assert {key: host[key] for key in literals} == literals
    assert sorted(host["CapAdd"]) == ["KILL", "SETGID", "SETUID"]
    assert host["SecurityOpt"][0] == "no-new-privileges"
    assert host["LogConfig"]["Type"] == "none"
    limits = {"core": 1, "nofile": 512, "fsize": 1 << 30, "nice": 0, "rtprio": 0}
    assert {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]} == limits
    assert all(mount["ReadOnly"] and mount["BindOptions"]["NonRecursive"] for mount in host["Mounts"])
    assert host["Tmpfs"]["/work"].startswith("rw,nosuid,nodev,exec,size=1048576,")
    assert host["Tmpfs"]["/tmp"].endswith("uid=0,gid=0,mode=1777")
    assert (body["User"], body["Cmd"], body["OpenStdin"], body["StdinOnce"]) == ("0:0", [], True, True)
    assert body["Labels"] == {"kernel-runner.job": "7", "kernel-runner.owner": "host-1"}
    assert body["Entrypoint"][:3] == ["/opt/env/bin/python", "-I", "-c"]


_CAPABILITIES = [["gpu", "compute", "utility"]]
_KFD = {"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd", "CgroupPermissions": "rw"}


@pytest.mark.parametrize(
    ("driver", "ids", "requests", "nodes", "visible"),
    [
        (None, (), [], [], True),
        (DeviceDriver.CDI, ("nvidia.com/gpu=GPU-1",), [{"Driver": "cdi"}], [], True),
        (DeviceDriver.NVIDIA, ("GPU-1", "GPU-2"), [{"Driver": "nvidia", "Capabilities": _CAPABILITIES}], [], False),
        (DeviceDriver.NODES, ("/dev/kfd",), [], [_KFD], True),
    ],
)
def test_devices_are_asked_for_by_exactly_one_way(
    driver: DeviceDriver | None, ids: tuple[str, ...], requests: list[Any], nodes: list[Any], *, visible: bool
) -> None:
    """CDI by name, NVIDIA by UUID, nodes by path; what images say of NVIDIA devices is overridden everywhere else."""
    devices = None if driver is None else Devices(driver=driver, ids=ids)
    body = create_body(replace(FULL, devices=devices), owner="o")
    assert body["HostConfig"]["DeviceRequests"] == [{**request, "DeviceIDs": [*ids]} for request in requests]
    assert body["HostConfig"]["Devices"] == nodes
    assert ("NVIDIA_VISIBLE_DEVICES=void" in body["Env"]) is visible


def test_the_boot_document_is_what_init_reads() -> None:
    """Programs, accounts, caps and environment arrive as they were written.

    HOME and TMPDIR of the spec are for the worker: the judge writes only where the worker cannot.
    """
    boot = parse_boot(boot_document(FULL))
    assert boot.kind == "pair"
    assert boot.judge == ("python", "judge")
    assert boot.worker == ("python", "worker")
    assert boot.rank_checker == ("python", "checker")
    assert (boot.judge_account.uid, boot.worker_account.uid) == (10001, 10002)
    assert boot.worker_account.groups == (105,)
    assert (boot.judge_account.oom_score_adj, boot.worker_account.oom_score_adj) == (200, 1000)
    assert boot.report_bytes == FULL.limits.report_bytes
    assert boot.worker_environment({"A": "b"})["PATH"] == "/bin"
    moved = parse_boot(boot_document(replace(FULL, environment={"HOME": "/work/x", "TMPDIR": "/work/y"})))
    assert [each.worker_environment({})["HOME"] for each in (boot, moved)] == ["/work", "/work/x"]
    for each in (boot, moved):
        assert each.judge_environment({})["HOME"] == each.judge_environment({})["TMPDIR"] == "/judge"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (replace(FULL, binds=(*FULL.binds, Bind(source="/a", target="/tmp/a"))), "/tmp/a lies below the tmpfs /tmp"),
        (replace(FULL, limits=replace(FULL.limits, cpus=())), "limits.cpus is empty"),
        (replace(FULL, limits=replace(FULL.limits, wall_s=0)), "limits.wall_s is 0"),
    ],
)
def test_a_spec_that_cannot_work_is_told(spec: SandboxSpec, reason: str) -> None:
    """Each fault in a sentence of its own; the full spec has none."""
    assert any(reason in complaint for complaint in spec_errors(spec))
    assert spec_errors(FULL) == []


def test_the_seccomp_profile_denies_by_default_and_leaves_out_what_is_dangerous() -> None:
    """An allow-list: none of the calls that isolation depends on is on it, clone3 says ENOSYS."""
    profile = json.loads(hardening.seccomp_profile(loopback=True))
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert all(arch["subArchitectures"] == [] for arch in profile["archMap"])
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert not allowed & {
        "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "bpf", "perf_event_open",
        "userfaultfd", "keyctl", "add_key", "request_key", "mount", "umount2", "pivot_root", "chroot", "unshare",
        "setns", "clone3", "io_uring_setup", "io_uring_enter", "seccomp", "init_module", "kexec_load", "reboot",
        "swapon", "open_by_handle_at", "name_to_handle_at", "fsopen", "move_mount", "modify_ldt", "vmsplice",
        "settimeofday", "clock_settime", "syslog", "acct", "quotactl", "iopl", "ioperm",
    }  # fmt: skip
    assert {"memfd_create", "sched_setaffinity", "execve", "mmap", "futex", "ioctl", "recvmsg"} <= allowed
    (clone3,) = [rule for rule in profile["syscalls"] if rule["names"] == ["clone3"]]
    assert (clone3["action"], clone3["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    compared = {arg["op"] for rule in profile["syscalls"] for arg in rule.get("args", ())}
    # A filter compares 64 bits where the kernel takes 32 of a number: what is not equal may be equal to the kernel.
    assert compared == {"SCMP_CMP_EQ", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ"}


def test_sockets_of_tcp_and_udp_are_refused_where_no_ranks_need_them() -> None:
    """The list without the loopback is the other one, less every rule that allows a socket of an internet family.

    Shared locks are said to be taken there.
    """
    full, closed = (json.loads(hardening.seccomp_profile(loopback=loopback)) for loopback in (True, False))
    changed = [rule for rule in full["syscalls"] if rule not in closed["syscalls"]]
    assert {(*rule["names"], *list(rule["args"][0].values())[1:-1]) for rule in changed} == {
        ("socket", 2),
        ("socket", 10),
        ("flock", ~fcntl.LOCK_NB & (1 << 64) - 1, fcntl.LOCK_SH),
    }
    new = [rule for rule in closed["syscalls"] if rule not in full["syscalls"]]
    assert [(rule["names"], rule["action"], rule["errnoRet"]) for rule in new] == [(["flock"], "SCMP_ACT_ERRNO", 0)]
    assert {**full, "syscalls": 0} == {**closed, "syscalls": 0}
    left = [rule for rule in closed["syscalls"] if "socket" in rule["names"]]
    assert {rule["args"][0]["value"] for rule in left} == {1, 16}
    one_rank = replace(FULL, boot=replace(FULL.boot, loopback=False))
    options = [create_body(spec, owner="me")["HostConfig"]["SecurityOpt"][1] for spec in (FULL, one_rank)]
    assert options == [f"seccomp={hardening.seccomp_profile(loopback=loopback)}" for loopback in (True, False)]


def test_every_rule_is_explained_in_the_security_document() -> None:
    """docs/security.md has a row for every setting of the table, which names the sources that check it."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    for rule in (*hardening.RULES, *hardening.LEFT_OUT):
        (row,) = [row for row in rows if f"`{rule.key.split('.')[-1]}`" in row[0]]
        assert row[-1].rstrip(" |") == ", ".join(rule.sources), rule.key
