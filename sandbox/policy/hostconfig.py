"""Turns a sandbox spec into the body of the engine's create request. Pure.

The settings that isolate a container, and their reasons, are in `hardening.RULES`. This module adds only what the
conversation with init needs.
"""

from __future__ import annotations

import json
from typing import Any

from sandbox import protocol
from sandbox.policy import hardening
from sandbox.spec import SandboxSpec

LABEL_OWNER = "kernel-runner.owner"
#: Identity of the process that made it (`sandbox.host.process_identity`).
LABEL_CREATOR = "kernel-runner.creator"
#: Mount point of the staged code.
CODE = "/kernel-runner"

#: Any Python 3 must read it: it says what is wrong with one that is too old.
_BOOTSTRAP = (
    "import sys; sys.version_info >= (3, 11) or sys.exit('found Python %d.%d, expected 3.11 or newer'"
    f" % sys.version_info[:2]); sys.path.insert(0, {CODE!r}); from sandbox.inside.init import main; main()"
)


def spec_errors(spec: SandboxSpec) -> list[str]:
    """Find the errors of a spec before the engine is asked; empty if there are none."""
    errors = [
        f"the bind {bind.target} lies below the tmpfs {fs.target}, whose owner could replace it"
        for bind in spec.binds
        for fs in spec.tmpfs
        if f"{bind.target}/".startswith(f"{fs.target}/")
    ]
    if not spec.limits.cpus:
        errors.append("limits.cpus is empty, expected at least one core")
    if not spec.limits.wall_s > 0:
        errors.append(f"limits.wall_s is {spec.limits.wall_s}, expected more than 0")
    return errors


def create_body(spec: SandboxSpec, *, owner: str) -> dict[str, Any]:
    """Return the body of POST /containers/create."""
    body: dict[str, Any] = {
        "Image": spec.image,
        # Entrypoint and not Cmd: it replaces the image's entry point.
        "Entrypoint": [spec.python, "-I", "-c", _BOOTSTRAP, boot_document(spec)],
        "Cmd": [],
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Labels": {**spec.labels, LABEL_OWNER: owner},
        "Tty": False,
        "OpenStdin": True,
        # When our connection drops, the engine closes the container's stdin, and init ends the container.
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {},
    }
    for rule in hardening.RULES:
        value = rule.value(spec)
        if value is None:
            continue
        *parents, key = rule.key.split(".")
        place = body
        for parent in parents:
            place = place[parent]
        place[key] = value
    return body


def boot_document(spec: SandboxSpec) -> str:
    """The settings that init needs before any request. Every process in the container can read them."""
    return json.dumps(
        {
            "protocol": protocol.VERSION,
            "kind": spec.boot.kind,
            "judge": list(spec.boot.judge),
            "worker": list(spec.boot.worker),
            "rank_checker": list(spec.boot.rank_checker),
            "preload": spec.boot.preload,
            "ahead": spec.boot.ahead,
            "awaited_cpus": list(spec.limits.cpus) if spec.import_cpus else [],
            "judge_uid": spec.accounts.judge,
            "worker_uid": spec.accounts.worker,
            "groups": [] if spec.devices is None else list(spec.devices.groups),
            "environment": dict(spec.environment),
            "output_bytes": spec.limits.output_bytes,
            "output_kill_bytes": spec.limits.output_kill_bytes,
            "report_bytes": spec.limits.report_bytes,
        },
        sort_keys=True,
    )
