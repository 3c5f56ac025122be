"""An engine that drops or changes one hardening setting is noticed, whichever it is, before any request goes in.

Every setting of the table is falsified in the create request, by a proxy before the real engine. Where a second source
knows of the setting, the proxy also lies: it lets `inspect` say what was asked for.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox.errors import EngineRefused
from sandbox.host.kernel_view import read_kernel_view
from sandbox.policy import hardening
from sandbox.policy.observed import Observed, Source, numbers
from sandbox.spec import DeviceDriver, Devices, SandboxSpec
from tests.integration.sandbox.conftest import MIB, QUICK, Workshop, converse
from tests.integration.sandbox.engine_proxy import Call

Body = dict[str, Any]
Change = Callable[[Body], None]


def _host(**settings: Any) -> Change:  # noqa: ANN401 values of HostConfig
    return lambda body: body["HostConfig"].update(settings)


def _top(**settings: Any) -> Change:  # noqa: ANN401 values of the create request
    return lambda body: body.update(settings)


def _drop(key: str) -> Change:
    return lambda body: body["HostConfig"].pop(key)


def _first_mount_writable(body: Body) -> None:
    body["HostConfig"]["Mounts"][0]["ReadOnly"] = False


def _bigger_work(body: Body) -> None:
    tmpfs = body["HostConfig"]["Tmpfs"]
    tmpfs["/work"] = tmpfs["/work"].replace("size=134217728", "size=268435456")


def _hosts_name(body: Body) -> None:
    body["HostConfig"]["UTSMode"] = "host"
    # Engines refuse a name of its own then.
    body.pop("Hostname")


def _permissive_seccomp(body: Body) -> None:
    permissive = json.dumps({"defaultAction": "SCMP_ACT_ALLOW"})
    body["HostConfig"]["SecurityOpt"] = ["no-new-privileges", f"seccomp={permissive}"]


#: A directory of the host that is bound: an engine's own data below it would bring mounts along that end at any time.
NO_MOUNTS_BELOW = "/srv"
#: What is done to the create request. Names after a slash tell several falsifications of one setting apart.
FALSE: dict[str, Change] = {
    "User": _top(User="10002:10002"),
    "Env": _top(Env=["NVIDIA_VISIBLE_DEVICES=all"]),
    "Healthcheck": _top(Healthcheck={"Test": ["CMD", "/bin/true"], "Interval": 3_600_000_000_000}),
    "HostConfig.NetworkMode": _host(NetworkMode="host"),
    "HostConfig.ReadonlyRootfs": _host(ReadonlyRootfs=False),
    "HostConfig.Tmpfs": _bigger_work,
    "HostConfig.Tmpfs/one more": lambda body: body["HostConfig"]["Tmpfs"].update({"/run": "rw"}),
    "HostConfig.Mounts": _first_mount_writable,
    "HostConfig.Mounts/one more": lambda body: body["HostConfig"]["Mounts"].append(
        {"Type": "bind", "Source": NO_MOUNTS_BELOW, "Target": "/var/tmp"}
    ),
    "HostConfig.CapDrop": _drop("CapDrop"),
    "HostConfig.CapAdd": _host(CapAdd=["KILL", "SETGID", "SETUID", "SYS_PTRACE"]),
    "HostConfig.SecurityOpt": _host(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
    "HostConfig.SecurityOpt/new privileges": lambda body: body["HostConfig"]["SecurityOpt"].remove("no-new-privileges"),
    "HostConfig.PidsLimit": _drop("PidsLimit"),
    "HostConfig.Memory": _host(Memory=256 * MIB),
    "HostConfig.MemorySwap": _drop("MemorySwap"),
    "HostConfig.OomScoreAdj": _drop("OomScoreAdj"),
    "HostConfig.CpusetCpus": _drop("CpusetCpus"),
    "HostConfig.CpusetMems": _host(CpusetMems="0"),
    "HostConfig.IpcMode": _host(IpcMode="host"),
    "HostConfig.ShmSize": _host(ShmSize=128 * MIB),
    "HostConfig.CgroupnsMode": _host(CgroupnsMode="host"),
    "HostConfig.Ulimits": _drop("Ulimits"),
    "HostConfig.LogConfig": _drop("LogConfig"),
    "HostConfig.RestartPolicy": _host(RestartPolicy={"Name": "on-failure", "MaximumRetryCount": 1}),
    "HostConfig.AutoRemove": _host(AutoRemove=True),
    "HostConfig.Devices": _host(
        Devices=[{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"}]
    ),
    "HostConfig.Runtime": _host(Runtime="io.containerd.runc.v2"),
    "HostConfig.Binds": _host(Binds=[f"{NO_MOUNTS_BELOW}:/var/tmp:ro"]),
    "HostConfig.PortBindings": _host(PortBindings={"80/tcp": [{"HostPort": "18080"}]}),
    "HostConfig.PidMode": _host(PidMode="host"),
    "HostConfig.UTSMode": _hosts_name,
    "HostConfig.UsernsMode": _host(UsernsMode="host"),
    "HostConfig.GroupAdd": _host(GroupAdd=["44"]),
    "HostConfig.DeviceCgroupRules": _host(DeviceCgroupRules=["c 10:* rwm"]),
    "HostConfig.Sysctls": _host(Sysctls={"net.ipv4.ip_forward": "1"}),
    "HostConfig.OomKillDisable": _host(OomKillDisable=True),
    "HostConfig.MaskedPaths": _host(MaskedPaths=[]),
    "HostConfig.ReadonlyPaths": _host(ReadonlyPaths=[]),
}
#: Requests that not every engine can fulfil; their falsification is put into a real answer to `inspect` instead.
ONLY_SAID: dict[str, Change] = {
    "HostConfig.Privileged": _host(Privileged=True),
    "HostConfig.Init": _host(Init=True),
    "HostConfig.DeviceRequests": _host(DeviceRequests=[{"Driver": "nvidia", "Count": -1, "DeviceIDs": None}]),
    # An engine without systemd would leave that directory in the host's cgroups.
    "HostConfig.CgroupParent": _host(CgroupParent="elsewhere.slice"),
    "HostConfig.VolumesFrom": _host(VolumesFrom=["another"]),
}
#: Only the engine knows: its own doing, or a list that the kernel does not give out.
UNSEEN_BY_OTHERS = {"HostConfig.SecurityOpt/permissive list", "HostConfig.CpusetMems", "HostConfig.UsernsMode"}
FALSE["HostConfig.SecurityOpt/permissive list"] = _permissive_seccomp
EVERY = (*hardening.RULES, *hardening.LEFT_OUT)


def test_every_setting_of_the_table_is_falsified_here() -> None:
    """A new setting needs a falsification, or this fails."""
    assert {rule.key for rule in EVERY} == {name.partition("/")[0] for name in (*FALSE, *ONLY_SAID)}


@pytest.mark.parametrize("name", FALSE)
def test_an_engine_that_does_something_else_is_noticed(workshop: Workshop, name: str) -> None:
    """The setting is named, and nothing is run; if a second source reports it, also where `inspect` looks right."""
    key = name.partition("/")[0]
    rule = next(rule for rule in EVERY if rule.key == key)
    lies = len(rule.sources) > 1 and name not in UNSEEN_BY_OTHERS
    asked: Body = {}

    def falsify(call: Call) -> None:
        if call.path == "/containers/create":
            body = call.json()
            asked.update(copy.deepcopy(body))
            FALSE[name](body)
            call.body = json.dumps(body).encode()

    def cover_up(call: Call, answer: Body) -> Body:
        if lies and call.path.endswith("/json") and "HostConfig" in answer:
            part, _, last = key.rpartition(".")
            place, truth = (answer["HostConfig"], asked["HostConfig"]) if part else (answer["Config"], asked)
            place[last] = truth.get(last)
            answer["HostConfig"]["MaskedPaths"] = answer["HostConfig"]["ReadonlyPaths"] = None
            answer["Mounts"] = [
                {**mount, "RW": False} for mount in answer["Mounts"] if mount["Destination"] != "/var/tmp"
            ]
        return answer

    with (
        workshop.proxied(owner=workshop.engine.owner, before=falsify, after=cover_up) as (_, engine),
        pytest.raises(EngineRefused, match="made another container than was asked for") as caught,
    ):
        engine.start(workshop.spec()).close()
    # From inside, a memory file system too many is a writable place too many.
    assert (key if name != "HostConfig.Tmpfs/one more" else "HostConfig.Mounts") in str(caught.value)
    assert "nothing was run in it" in str(caught.value)
    if lies:
        assert f"({Source.KERNEL})" in str(caught.value) or f"({Source.INSIDE})" in str(caught.value)


def test_the_proxy_itself_changes_nothing(workshop: Workshop) -> None:
    """Control: with the same proxy and no falsification the container is as asked for, and works."""
    with (
        workshop.proxied(owner=workshop.engine.owner, after=lambda _, answer: answer) as (_, engine),
        engine.start(workshop.spec()) as container,
    ):
        report = converse(container, QUICK)
    assert report.ok
    assert report.attested["settings"] == len(EVERY)
    assert report.attested["unseen"] == []
    assert report.attested["cpus"] == [0]
    assert report.attested["devices"] == []


def _seen(workshop: Workshop, spec: SandboxSpec) -> tuple[SandboxSpec, Observed]:
    """The spec of a real container, with the uids that it was lent, and what the sources report of it."""
    with workshop.engine.start(spec) as container:
        inspected = workshop.engine._inspect(container.id)
        return container.spec, Observed(
            engine=inspected,
            kernel=read_kernel_view(inspected["State"]["Pid"], container._counters),
            inside=dict(container.facts),
        )


def test_what_inspect_says_is_compared_setting_by_setting(workshop: Workshop) -> None:
    """Each falsification, put into a real answer to `inspect`, is a difference that the engine reports."""
    spec, observed = _seen(workshop, workshop.spec())
    assert hardening.violations(spec, observed) == []
    assert observed.inside["interfaces"] == ["lo"]
    for name, change in {**FALSE, **ONLY_SAID}.items():
        said: Body = copy.deepcopy(dict(observed.engine))
        # `inspect` keeps apart what the create request has side by side.
        said["Config"]["HostConfig"] = said["HostConfig"]
        change(said["Config"])
        found = hardening.violations(spec, replace(observed, engine=said))
        assert {(each.setting, each.source) for each in found} == {(name.partition("/")[0], Source.ENGINE)}, name


def test_the_slots_memory_nodes_are_attested_by_the_kernel(workshop: Workshop) -> None:
    """Where a slot has a NUMA node, the cgroup's list is compared with it."""
    spec, observed = _seen(workshop, workshop.spec(mems=(0,)))
    assert hardening.violations(spec, observed) == []
    (difference,) = hardening.violations(spec, replace(observed, kernel=replace(observed.kernel, mems=(0, 1))))
    assert str(difference) == "HostConfig.CpusetMems: the cgroup's list (kernel) is (0, 1), expected (0,)"


def test_what_is_attested_is_in_the_report_and_follows_the_spec(workshop: Workshop) -> None:
    """Limits, cores and devices of the record are those of the container; another policy has another digest."""
    devices = Devices(driver=DeviceDriver.NODES, ids=("/dev/fuse",))
    cores = numbers(",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
    spec = replace(workshop.spec(memory_bytes=300 * MIB, pids=77, cpus=cores), devices=devices)
    record, plain = (workshop.run(each, QUICK).attested for each in (spec, workshop.spec()))
    assert (record["memory_bytes"], record["pids"], tuple(record["cpus"])) == (300 * MIB, 77, cores)
    assert record["devices"] == ["/dev/fuse"]
    assert record["policy"] != plain["policy"]
    json.dumps(record)
