"""Containers with one defence switched off, for tests only: nothing of the product can ask for one.

What the engine is asked for is changed on its way there, for single jobs, known by their label; the attestation, which
would rightly refuse such a container, is told to look away for them. Pure but for `installed`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from sandbox.policy import hardening, hostconfig
from sandbox.spec import SandboxSpec

JOB_LABEL: Final = "kernel-runner.job"

Body = MutableMapping[str, Any]


def _host(**settings: object) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        body["HostConfig"].update(settings)

    return change


def _security(leave_out: str, instead: str | None) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        options = [option for option in body["HostConfig"]["SecurityOpt"] if not option.startswith(leave_out)]
        body["HostConfig"]["SecurityOpt"] = options if instead is None else [*options, instead]

    return change


def _boot(**settings: object) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        *rest, boot = body["Entrypoint"]
        body["Entrypoint"] = [*rest, json.dumps({**json.loads(boot), **settings})]

    return change


def _tmpfs(old: str, new: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        mounts = body["HostConfig"]["Tmpfs"]
        body["HostConfig"]["Tmpfs"] = {
            target: ",".join(f"{old}={new}" if part.startswith(f"{old}=") else part for part in options.split(","))
            for target, options in mounts.items()
        }

    return change


def _one_uid(body: Body) -> None:
    """The worker becomes the judge's equal."""
    judge = json.loads(body["Entrypoint"][-1])["judge_uid"]
    _boot(worker_uid=judge)(body)
    for target, options in body["HostConfig"]["Tmpfs"].items():
        if target != "/tmp":
            owned = [part for part in options.split(",") if not part.startswith(("uid=", "gid="))]
            body["HostConfig"]["Tmpfs"][target] = ",".join([*owned, f"uid={judge}", f"gid={judge}"])


def _docker_socket(body: Body) -> None:
    body["HostConfig"]["Mounts"].append(
        {"Type": "bind", "Source": "/dev/null", "Target": "/run/docker.sock", "ReadOnly": True}
    )
    # The root is read-only and has no such mount point; /run is the engine's to make there.
    body["HostConfig"]["ReadonlyRootfs"] = False


#: What can be switched off, by the word that cases use.
RELAXATIONS: Final[Mapping[str, Callable[[Body], None]]] = {
    "seccomp": _security("seccomp", "seccomp=unconfined"),
    "new_privileges": _security("no-new-privileges", None),
    "pids": _host(PidsLimit=4096),
    "memory": _host(Memory=4 << 30, MemorySwap=4 << 30),
    "shm": _host(ShmSize=512 << 20),
    "tmpfs": _tmpfs("size", str(512 << 20)),
    "inodes": _tmpfs("nr_inodes", "400000"),
    "ulimits": _host(Ulimits=[{"Name": "core", "Soft": 1 << 30, "Hard": 1 << 30}, *(
        {"Name": name, "Soft": value, "Hard": value} for name, value in {"nofile": 8192, "fsize": 4 << 30}.items()
    )]),
    "network": _host(NetworkMode="host"),
    "ipc": _host(IpcMode="host", ShmSize=None),
    "masks": _host(MaskedPaths=[], ReadonlyPaths=[]),
    "devices": _host(Devices=[{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "r"}]),
    "cpuset": _host(CpusetCpus=""),
    "output": _boot(output_kill_bytes=1 << 30),
    "one_uid": _one_uid,
    "docker_socket": _docker_socket,
}  # fmt: skip


@contextmanager
def installed(jobs: Mapping[str, str]) -> Iterator[None]:
    """While inside: jobs whose label stands in `jobs` get a container without the defence named there."""
    create_body, violations = hostconfig.create_body, hardening.violations

    def relaxed_body(spec: SandboxSpec, *, owner: str) -> dict[str, Any]:
        body = create_body(spec, owner=owner)
        defence = jobs.get(spec.labels.get(JOB_LABEL, ""))
        if defence is not None:
            RELAXATIONS[defence](body)
        return body

    def relaxed_violations(spec: SandboxSpec, seen: Any) -> Any:  # noqa: ANN401 handed through as it is
        return [] if spec.labels.get(JOB_LABEL, "") in jobs else violations(spec, seen)

    with (
        mock.patch.object(hostconfig, "create_body", relaxed_body),
        mock.patch.object(hardening, "violations", relaxed_violations),
    ):
        yield
