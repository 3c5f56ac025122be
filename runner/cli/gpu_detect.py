"""`gpu detect`: the devices of this host, the GPU type of each, and the file of a new type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from runner.base.errors import ConfigError, NotFoundError
from runner.base.gpu_types import GpuType, Registry, advise, draft
from runner.cli.app import example, note, out, session
from runner.cli.finding import Finding, report
from runner.cli.finding import render as render_finding
from runner.devices import Details, Look, described, look_at_devices, sysfs, types_of

#: A part of the group `gpu`.
commands = typer.Typer()


@commands.command(
    "detect",
    epilog=example(
        "kernel-runner gpu detect\n"
        "✓ nvidia 0: 'NVIDIA H100 80GB HBM3' is H100: its name matches 'NVIDIA H100( .*)?'\n"
        "✗ nvidia 1: 'NVIDIA GeForce RTX 5090' is of no GPU type (PCI id 10de:2b85)\n"
        "    kernel-runner gpu detect --write NAME --device GPU-0f01a1b2-2b85-4c5d-8e9f-0123456789ab",
        "kernel-runner gpu detect --write RTX5090 --device 1",
    ),
)
def detect(
    context: typer.Context,
    *,
    write: Annotated[
        str | None, typer.Option("--write", metavar="NAME", help="Write a file of a new GPU type into `gpus_dir`.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="D", help="Its device: index, UUID or PCI address."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show this host's devices, the GPU type of each and why, and what is missing.

    Asks NVML (package nvidia-ml-py) and AMD SMI (package amdsmi); needs no database. Exits with 1 if a device cannot be
    used as it is. In JSON, values that a library does not tell are null.

    --write names the type of a device that is of none. The file has what the driver knows; add the figures of the data
    sheet (docs/adding-a-gpu-type.md). The daemon reads it when it starts.
    """
    directory = session(context).config.gpus_dir
    registry = Registry.load(directory)
    looks, problems = look_at_devices()
    if write is not None and device is not None:
        _write(write, _chosen(looks, problems, device), registry, directory)
        return
    if write is not None or device is not None:
        raise ConfigError("gpu detect: found one of --write and --device, expected both or neither")
    findings = [_recognised(look, registry) for look in looks]
    findings += [
        Finding.failed("devices", problem, "see what the driver says: dmesg, nvidia-smi") for problem in problems
    ]
    if not findings:
        findings.append(Finding.ok("devices", "none here; this host serves processor cores"))
    report(findings, as_json=as_json, devices=[_document(look, registry) for look in looks], problems=problems)


def _why(look: Look, entry: GpuType) -> str:
    pattern = next((each for each in entry.device_names if re.fullmatch(each, look.device.name)), None)
    why = f"its name matches {pattern!r}" if pattern is not None else f"its PCI id is {look.device.pci_id}"
    return why if entry.partition is None else f"{why}, and partition {look.device.partition} {entry.partition!r}"


def _write(name: str, look: Look, registry: Registry, directory: Path) -> None:
    """Write the file of a type for a device that is of none.

    Raises:
        ConfigError: the name cannot be used, the device has a type, or the file exists or cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,62}", name, re.ASCII):
        raise ConfigError(
            f"--write: found {name!r}, expected a letter or digit, then at most 62 letters, digits, '_', '.' and '-'"
        )
    with suppress(NotFoundError):
        entry = registry.get(name)
        raise ConfigError(
            f"--write: {name} is GPU type {entry.name} of {registry.origin(entry.name)}; choose another name"
        )
    types = types_alone(look, registry)
    if types:
        remedy = "write the file of a second type by hand, with `extends` and `detect = false`"
        raise ConfigError(f"--device: {described(look.device)} is {types[0].name} already; {remedy}")
    details = look.details or Details()
    path = directory / f"{name}.toml"
    text = draft(name, look.device, architecture=details.architecture, memory_bytes=details.memory_bytes)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        path.chmod(0o644)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            # Half a file would keep the daemon from starting.
            with suppress(OSError):
                path.unlink()
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; run it as a user who may") from error
    try:
        registry = Registry.load(directory)
    except ConfigError:
        # A name that differs from another's by its case alone.
        path.unlink()
        raise
    note(f"{path} is written; `systemctl restart kernel-runner` lets the daemon know it")
    for finding in findings_of(registry.get(name), registry):
        out(render_finding(finding))


def _chosen(looks: Sequence[Look], problems: Sequence[str], name: str) -> Look:
    named = [
        look
        for look in looks
        if name.lower() in (look.device.uuid.lower(), (look.device.pci_address or "").lower(), str(look.device.index))
    ]
    if len(named) == 1:
        return named[0]
    if named:
        uuids = ", ".join(f"{look.device.uuid} ({look.device.name})" for look in named)
        raise ConfigError(f"--device: {name!r} is several devices: {uuids}; name one by its UUID")
    there = ", ".join(f"{look.device.index} = {look.device.uuid} ({look.device.name})" for look in looks) or "none"
    raise ConfigError("; ".join((f"--device: no device {name!r} on this host, found: {there}", *problems)))


def findings_of(entry: GpuType, registry: Registry) -> Iterator[Finding]:
    """What a type's file says of its devices, and what it lacks."""
    device = entry.device
    facts = [
        f"{entry.count} x {entry.vendor}" if entry.count > 1 else entry.vendor.value,
        *([f"{device.memory_gib:g} GiB"] if device.memory_gib is not None else []),
        *([f"{device.bandwidth_gb_s:g} GB/s"] if device.bandwidth_gb_s is not None else []),
        *(f"{dtype} {rate:g}" for dtype, rate in device.peak_tflops.items()),
        *([f"SM at {entry.clocks.sm_mhz} MHz"] if entry.clocks.sm_mhz is not None else []),
        *([f"memory at {entry.clocks.memory_mhz} MHz"] if entry.clocks.memory_mhz is not None else []),
    ]
    yield Finding.ok(entry.name, f"{', '.join(facts)} ({registry.origin(entry.name)})")
    for advice in advise(entry):
        yield Finding.warning(entry.name, advice.fact, advice.remedy)


def types_alone(look: Look, registry: Registry) -> list[GpuType]:
    """The types that a slot with this device alone would be of, if it is not named in `slots`."""
    return [entry for entry in types_of(registry, look.device) if entry.detect and entry.count == 1]


def _recognised(look: Look, registry: Registry) -> Finding:
    """What a device is, or what keeps it from being used."""
    device = look.device
    name = f"{device.vendor} {device.index}"
    what = described(device)
    if look.details is None:
        return Finding.failed(name, f"{what} does not answer", "reset it or the host")
    types = types_alone(look, registry)
    if len(types) == 1:
        return Finding.ok(name, f"{what} is {types[0].name}: {_why(look, types[0])}")
    if types:
        names = " and ".join(f"{entry.name} ({_why(look, entry)})" for entry in types)
        return Finding.failed(
            name, f"{what} is both {names}", "set detect = false in all but one of them, or name the device in slots"
        )
    return Finding.failed(
        name,
        f"{what} is of no GPU type (PCI id {device.pci_id or 'unknown'})",
        f"kernel-runner gpu detect --write NAME --device {device.uuid}",
    )


def _document(look: Look, registry: Registry) -> dict[str, Any]:
    return {
        "device": {**asdict(look.device), "cpus_near": list(sysfs.cpus_near(look.device.pci_address))},
        "details": None if look.details is None else asdict(look.details),
        "reading": None if look.reading is None else asdict(look.reading),
        "types": [
            {"name": entry.name, "detect": entry.detect, "count": entry.count, "why": _why(look, entry)}
            for entry in types_of(registry, look.device)
        ],
    }
