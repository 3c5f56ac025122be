"""`gpu detect`: the devices of this host, and the GPU type of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from runner.base.gpu_types import GpuType, Registry, advise
from runner.cli.app import example, session
from runner.cli.finding import Finding, Mark, report
from runner.devices import Look, described, look_at_devices, sysfs, types_of

#: A part of the group `gpu`.
commands = typer.Typer()


@commands.command(
    "detect",
    epilog=example(
        "kernel-runner gpu detect\n"
        "✓ nvidia 0: 'NVIDIA H100 80GB HBM3' is H100: its name matches 'NVIDIA H100( .*)?'\n"
        "✗ nvidia 1: 'NVIDIA GeForce RTX 5090' is of no GPU type (PCI id 10de:2b85)\n"
        "    write a file for it (docs/adding-a-gpu-type.md)"
    ),
)
def detect(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show this host's devices, the GPU type of each and why, and what is missing.

    Asks NVML (package nvidia-ml-py) and AMD SMI (package amdsmi); needs no database. Exits with 1 if a device cannot be
    used as it is. In JSON, values that a library does not tell are null.
    """
    registry = Registry.load(session(context).config.gpus_dir)
    looks, problems = look_at_devices()
    findings = [_recognised(look, registry) for look in looks]
    findings += [
        Finding(name="devices", mark=Mark.FAILED, fact=problem, remedy="see what the driver says: dmesg, nvidia-smi")
        for problem in problems
    ]
    if not findings:
        findings.append(Finding(name="devices", mark=Mark.OK, fact="none here; this host serves processor cores"))
    report(findings, as_json=as_json, devices=[_document(look, registry) for look in looks], problems=problems)


def _why(look: Look, entry: GpuType) -> str:
    pattern = next((each for each in entry.device_names if re.fullmatch(each, look.device.name)), None)
    why = f"its name matches {pattern!r}" if pattern is not None else f"its PCI id is {look.device.pci_id}"
    return why if entry.partition is None else f"{why}, and partition {look.device.partition} {entry.partition!r}"


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
    yield Finding(name=entry.name, mark=Mark.OK, fact=f"{', '.join(facts)} ({registry.origin(entry.name)})")
    for advice in advise(entry):
        yield Finding(name=entry.name, mark=Mark.WARNING, fact=advice.fact, remedy=advice.remedy)


def types_alone(look: Look, registry: Registry) -> list[GpuType]:
    """The types that a slot with this device alone would be of, if it is not named in `slots`."""
    return [entry for entry in types_of(registry, look.device) if entry.detect and entry.count == 1]


def _recognised(look: Look, registry: Registry) -> Finding:
    """What a device is, or what keeps it from being used."""
    device = look.device
    name = f"{device.vendor} {device.index}"
    what = described(device)
    if look.details is None:
        return Finding(name=name, mark=Mark.FAILED, fact=f"{what} does not answer", remedy="reset it or the host")
    types = types_alone(look, registry)
    if len(types) == 1:
        return Finding(name=name, mark=Mark.OK, fact=f"{what} is {types[0].name}: {_why(look, types[0])}")
    if types:
        names = " and ".join(f"{entry.name} ({_why(look, entry)})" for entry in types)
        return Finding(
            name=name,
            mark=Mark.FAILED,
            fact=f"{what} is both {names}",
            remedy="set detect = false in all but one of them, or name the device in slots",
        )
    return Finding(
        name=name,
        mark=Mark.FAILED,
        fact=f"{what} is of no GPU type (PCI id {device.pci_id or 'unknown'})",
        remedy="write a file for it (docs/adding-a-gpu-type.md)",
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
