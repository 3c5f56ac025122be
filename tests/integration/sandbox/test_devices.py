"""Exactly the leased devices: fake nodes with the numbers of harmless ones."""

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

from sandbox.host.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import DeviceDriver, Devices, SandboxSpec
from tests.integration.sandbox.conftest import Workshop

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
    with workshop.imported(buffer.getvalue()) as reference:
        image = workshop.engine.image_id(reference)
        found = _try_all(workshop, replace(workshop.spec(), image=image), "/srv/disk")
    assert found["found"]["/srv/disk"] == found["opened"]["/srv/disk"] == "PermissionError"
