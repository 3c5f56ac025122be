"""What `check` says of engines and runtimes: which work on this host, which do not, why, and what to do; a line each.

Asks programs of this host; containers are started by the caller.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from runner.base.gpu_types import GpuType
from runner.base.model import Slot
from runner.cli.finding import Finding
from runner.cli.versions import FLOORS, below_floor
from runner.devices.vendors import SUPPORTED
from runner.evaluation.container_spec import HOST_IMAGE, cdi_name
from sandbox.host.engine import EngineFacts

_TOOLKIT: Final = "nvidia-container-toolkit"
#: Programs that tell the toolkit's version, newest first.
_TOOLKIT_PROGRAMS: Final = ("nvidia-ctk", "nvidia-container-cli")
_ANSWER_S: Final = 10.0
#: An engine may quote the whole of what it refuses.
_LONGEST: Final = 300


def runtimes(facts: EngineFacts, used: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Whether the engine has each runtime that is used; `used`: GPU types of this host's slots by their runtime."""
    for runtime, types in used.items():
        name, users = f"runtime {runtime}", ", ".join(types)
        if runtime in facts.runtimes:
            yield Finding.ok(name, f"the engine offers it, used by {users}")
        else:
            yield Finding.failed(name, f"the engine does not offer it, and {users} asks for it", _install(runtime))


def device_access(gpu: GpuType, slots: Sequence[Slot], offered: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """How containers of a type get their devices, and what is missing for that.

    Args:
        gpu: the type.
        slots: this host's slots of it.
        offered: what the engine offers by CDI.
    """
    devices = tuple(dict.fromkeys(device for slot in slots for device in slot.devices))
    if not devices:
        return
    name = f"devices of {gpu.name}"
    names = [cdi_name(device, offered) for device in devices]
    if gpu.image != HOST_IMAGE and all(names):
        yield Finding.ok(name, f"by CDI: {', '.join(filter(None, names))}")
        return
    if gpu.image != HOST_IMAGE and SUPPORTED[gpu.vendor].by_uuid:
        fact = "through NVIDIA's runtime: the engine offers no CDI name that is theirs"
        remedy = (
            "with it, `systemctl daemon-reload` can take the devices of running containers away where cgroups are of "
            "version 2; with CDI it cannot (from Docker 28.2 on; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)"
        )
        yield Finding.ok(name, fact, remedy)
        return
    support = SUPPORTED[gpu.vendor]
    lacking = sorted(
        {
            f"{device.vendor} {device.index} has no {node_name}"
            for device in devices
            for node_name in support.needed_nodes
            if not any(Path(node).name.startswith(node_name) for node in device.nodes)
        }
    )
    if lacking:
        yield Finding.failed(name, f"by device node: {'; '.join(lacking)}", support.nodes_remedy)
    else:
        yield Finding.ok(name, "by device node")


def versions(components: Mapping[str, str]) -> Iterator[Finding]:
    """Known problems of the versions of the programs that hold a sandbox together."""
    for component, version in sorted(components.items()):
        if component not in FLOORS:
            continue
        complaint = below_floor(component, version)
        if complaint is None:
            yield Finding.ok(component, version)
        else:
            remedy = "use another version, or verify that your distribution has mended this one"
            yield Finding.warning(component, complaint, remedy)


def toolkit_version() -> dict[str, str]:
    """The version of NVIDIA's container toolkit, by its name; empty where it is not installed."""
    for program in _TOOLKIT_PROGRAMS:
        path = shutil.which(program)
        if path is None:
            continue
        try:
            answer = subprocess.run(
                [path, "--version"],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_ANSWER_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return {_TOOLKIT: answer.stdout.strip().partition("\n")[0]}
    return {}


def shortened(text: str) -> str:
    """The beginning of a long sentence."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _install(runtime: str) -> str:
    if runtime != "runsc":
        return f"add it to `runtimes` in /etc/docker/daemon.json, or set another `runtime` than {runtime!r}"
    where = shutil.which("runsc")
    first = "" if where else "install gVisor (https://gvisor.dev/docs/user_guide/install/), then "
    return (
        f'{first}add {{"runtimes": {{"runsc": {{"path": "{where or "/usr/bin/runsc"}", "runtimeArgs":'
        ' ["--network=none"]}}} to /etc/docker/daemon.json and restart Docker'
    )
