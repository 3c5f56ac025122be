"""Exactly the leased devices: fake nodes with the numbers of harmless ones, and what the engine is asked for."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.model import Device, Slot
from runner.evaluation.container_spec import make_spec
from runner.evaluation.context import Environment, Place
from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Boot, DeviceDriver, Devices, SandboxSpec
from tests.integration.sandbox.conftest import Workshop
from tests.integration.sandbox.engine_proxy import Answer, Call, EngineProxy
from tests.unit import samples

GROUP = 23456
_NULL, _ZERO = os.makedev(1, 3), os.makedev(1, 5)

#: Tries to open every node of the host by name, to find others anywhere, and to make them by number.
_TRY_ALL = """
import json, os, stat
host = json.load(open('host.json'))
def attempt(work):
    try:
        work()
    except OSError as error:
        return type(error).__name__
    return 'opened'
found = []
for top, folders, names in os.walk('/'):
    # Binds of the host hold no nodes, and take long to walk through.
    folders[:] = [f for f in folders if os.path.join(top, f) not in ('/proc', '/sys', '/usr', '/root', '/home', '/opt')]
    for name in names:
        path = os.path.join(top, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            found.append(path)
def make(number, mode, device):
    os.mknod(f'/work/{number}', mode | 0o666, device)
print(json.dumps({
    'opened': {path: attempt(lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))) for path in host},
    'found': {path: attempt(lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))) for path in sorted(found)},
    'made': sorted({attempt(lambda: make(n, *node)) for n, node in enumerate(host.values())}),
    'groups': os.getgroups(),
}))
"""
_COMMON = {
    f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero", "ptmx", "pts/ptmx", "console")
}


def _host_nodes() -> dict[str, tuple[int, int]]:
    """Every device node below the host's /dev: type and number by path."""
    found = {}
    for top, _, names in os.walk("/dev"):
        for name in names:
            path = Path(top, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                # A terminal that was closed, or another test's node.
                continue
            if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
                found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_rdev)
    return found


@pytest.fixture
def fake_nodes() -> Iterator[tuple[Path, Path]]:
    """Two device nodes of a made-up driver below /dev, for a group alone: copies of /dev/null and /dev/zero."""
    folder = Path("/dev", f"kernel-runner-{uuid.uuid4().hex[:12]}")
    try:
        folder.mkdir()
        nodes = folder / "renderD128", folder / "renderD129"
        for node, number in zip(nodes, (_NULL, _ZERO), strict=True):
            os.mknod(node, stat.S_IFCHR | 0o660, number)
            node.chmod(0o660)
            os.chown(node, 0, GROUP)
    except PermissionError:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip("device nodes cannot be made here")
    yield nodes
    shutil.rmtree(folder)


def _try_all(workshop: Workshop, spec: SandboxSpec, *more: str) -> dict[str, Any]:
    host = {**_host_nodes(), **dict.fromkeys(more, (stat.S_IFCHR, _NULL))}
    files = {"try.py": _TRY_ALL.encode(), "host.json": json.dumps(host).encode()}
    step = Step(name="test", argv=(workshop.python, "try.py"))
    report = workshop.run(spec, StepsRequest(files=files, steps=(step,)))
    assert report.steps[0].exit_code == 0, report.steps[0].stderr
    found: dict[str, Any] = json.loads(report.steps[0].stdout)
    return found


def test_no_node_of_the_host_can_be_opened_but_the_leased_one(
    workshop: Workshop, fake_nodes: tuple[Path, Path]
) -> None:
    """By name, by looking everywhere, by making one: the worker gets at its lease and at what every container has."""
    leased, other = map(str, fake_nodes)
    devices = Devices(driver=DeviceDriver.NODES, ids=(leased,), groups=(GROUP,))
    found = _try_all(workshop, replace(workshop.spec(), devices=devices))
    assert other in found["opened"]
    assert {path for path, how in found["opened"].items() if how == "opened"} <= {*_COMMON, leased}
    assert found["opened"][leased] == "opened"
    assert found["opened"][other] == "FileNotFoundError"
    assert set(found["found"]) <= {*_COMMON, leased}
    assert found["made"] == ["PermissionError"]
    assert found["groups"] == [GROUP]


def test_without_the_nodes_group_a_lease_would_be_worth_nothing(
    workshop: Workshop, fake_nodes: tuple[Path, Path]
) -> None:
    """Control: the node is there, and its mode counts."""
    leased = str(fake_nodes[0])
    devices = Devices(driver=DeviceDriver.NODES, ids=(leased,))
    assert _try_all(workshop, replace(workshop.spec(), devices=devices))["opened"][leased] == "PermissionError"


def test_a_node_that_an_image_brings_along_opens_nothing(workshop: Workshop, eval_python: Path) -> None:
    """The cgroup's list is a second wall: a node outside of /dev, open to all by its mode, is refused by number."""
    buffer = io.BytesIO(HostRoot(eval_python).tar())
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        node = tarfile.TarInfo("srv/disk")
        node.type, node.mode = tarfile.CHRTYPE, 0o666
        node.devmajor, node.devminor = 10, 229
        archive.addfile(node)
    repository, tag = "kernel-runner/test", uuid.uuid4().hex
    with workshop.engine._client(60) as api:
        api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    try:
        image = workshop.engine.image_id(f"{repository}:{tag}")
        found = _try_all(workshop, replace(workshop.spec(), image=image), "/srv/disk")
        assert found["found"]["/srv/disk"] == found["opened"]["/srv/disk"] == "PermissionError"
    finally:
        with workshop.engine._client(60) as api:
            api.remove_image(f"{repository}:{tag}")


def _asked(workshop: Workshop, spec: SandboxSpec) -> dict[str, Any]:
    """The create request for a spec, as it arrived at an engine (which then refuses: the devices do not exist)."""

    def refuse(call: Call) -> Answer | None:
        return Answer.error("no such device") if call.path == "/containers/create" else None

    proxy = EngineProxy(workshop.engine.base_url, before=refuse)
    engine = DockerEngine(proxy.url, owner="nobody")
    try:
        with pytest.raises(EngineRefused, match="no such device"):
            engine.start(spec)
    finally:
        engine.close()
        proxy.close()
    (create,) = [call for call in proxy.calls if call.path == "/containers/create"]
    body: dict[str, Any] = create.json()
    return body


_H100 = tuple(
    Device(
        uuid=f"GPU-{number}",
        name="NVIDIA H100",
        vendor="nvidia",
        index=number,
        numa_node=1,
        nodes=(f"/dev/nvidia{number}", "/dev/nvidiactl", "/dev/nvidia-uvm"),
    )
    for number in range(2)
)
_MI300 = Device(
    uuid="uuid-3",
    name="AMD Instinct MI300X",
    vendor="amd",
    index=3,
    nodes=("/dev/kfd", "/dev/dri/renderD131"),
    groups=(992, 993),
)
#: What the engine offers: one by UUID, one by index, and AMD's by number.
_CDI = {
    "nvidia.com/gpu=GPU-0": ("/dev/nvidia0", "/dev/nvidiactl"),
    "nvidia.com/gpu=1": ("/dev/nvidia1", "/dev/nvidiactl"),
    "amd.com/gpu=3": ("/dev/dri/card3", "/dev/dri/renderD131", "/dev/kfd"),
}


@pytest.mark.parametrize(
    ("offer", "devices", "requests", "nodes"),
    [
        ((DeviceDriver.NVIDIA, _CDI), _H100, [("cdi", ["nvidia.com/gpu=GPU-0", "nvidia.com/gpu=1"])], []),
        ((DeviceDriver.NVIDIA, {}), _H100[:1], [("nvidia", ["GPU-0"])], []),
        ((DeviceDriver.NODES, {}), _H100[1:], [], ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]),
        ((DeviceDriver.NODES, _CDI), (_MI300,), [("cdi", ["amd.com/gpu=3"])], []),
        ((DeviceDriver.NODES, {}), (_MI300,), [], ["/dev/kfd", "/dev/dri/renderD131"]),
    ],
)
def test_the_engine_is_asked_for_the_leased_devices_and_no_other(
    workshop: Workshop,
    offer: tuple[DeviceDriver, dict[str, tuple[str, ...]]],
    devices: tuple[Device, ...],
    requests: list[tuple[str, list[str]]],
    nodes: list[str],
) -> None:
    """From the slot to the bytes on the engine's socket: names, UUIDs or nodes, near memory, and the nodes' groups."""
    slot = Slot(name="gpu", gpu_type="H100", devices=devices, cpus=(0,), numa_node=devices[0].numa_node)
    environment = Environment(
        image=workshop.template.image,
        python=workshop.python,
        binds=workshop.template.binds,
        device_driver=offer[0],
        cdi=offer[1],
    )
    asked = _asked(
        workshop,
        make_spec(
            Place(gpu=samples.H100, slot=slot, environment=environment), Boot(kind="steps"), wall_s=60, labels={}
        ),
    )
    host = asked["HostConfig"]
    assert [(request["Driver"], request["DeviceIDs"]) for request in host["DeviceRequests"]] == requests
    assert all("Count" not in request for request in host["DeviceRequests"])
    assert [node["PathOnHost"] for node in host["Devices"]] == nodes
    assert all(node["PathInContainer"] == node["PathOnHost"] for node in host["Devices"])
    assert {node["CgroupPermissions"] for node in host["Devices"]} <= {"rw"}
    by_runtime = any(driver == "nvidia" for driver, _ in requests)
    assert ("NVIDIA_VISIBLE_DEVICES=void" in asked["Env"]) is not by_runtime
    assert host.get("CpusetMems") == ("1" if slot.numa_node == 1 else None)
    groups = [992, 993] if devices == (_MI300,) else []
    assert json.loads(asked["Entrypoint"][-1])["groups"] == groups
