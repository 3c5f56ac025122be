"""`gpu`: GPU types, what their files lack, where they are offered, which devices are here, and new types of them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from runner.cli import gpu_add, gpu_clocks, json_output, render_hosts
from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.evaluate import local_evaluator
from runner.cli.finding import Finding, Mark, verdict_of
from runner.cli.finding import render as render_finding
from runner.cli.gpu_test import slots_to_test, try_slot
from runner.devices import Details, Look, described, detect_slots, look_at_devices, sysfs, types_of
from runner.devices.locking import set_clocks
from runner.errors import ConfigError
from runner.gpu_types import Found, GpuType, Registry, Vendor, Wish, advise, draft
from runner.gpu_types.registry import BUILTIN

gpu = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="GPU types: what submissions can be evaluated on.")
app.add_typer(gpu, name="gpu")


@gpu.command("list", epilog=example("kernel-runner gpu list"))
def list_types(
    context: typer.Context,
    *,
    here: Annotated[
        bool,
        typer.Option("--here", help="List built-in types and `gpus_dir` of this host, with their files; no database."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the GPU types that daemons have announced.

    Shows slots on hosts that are up, and waiting jobs. Submissions to a type that no host has announced wait.

    `on hardware` is the day when something of this project last ran on such a device, by the type's file on this host;
    `gpu show` says what ran.
    """
    registry = Registry.load(session(context).config.gpus_dir)
    if here:
        if as_json:
            out_json([_registered(entry, registry) for entry in registry.all()])
        else:
            out(render_hosts.registry_table([(entry, registry.origin(entry.name)) for entry in registry.all()]))
        return
    with session(context).store() as store:
        types, hosts = store.gpu_types(), store.hosts()
    if as_json:
        out_json(json_output.gpu_types(types, hosts, registry))
    else:
        out(render_hosts.gpu_types_table(types, hosts, registry))


@gpu.command("show", epilog=example("kernel-runner gpu show H100"))
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TYPE")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a GPU type of this host: settings, figures, and what ran on such a device.

    Reads the built-in types and `gpus_dir`; needs neither device nor database.
    """
    registry = Registry.load(session(context).config.gpus_dir)
    entry = registry.get(name)
    if as_json:
        out_json(_registered(entry, registry))
    else:
        out(render_hosts.gpu_type_page(entry, registry.origin(entry.name)))


@gpu.command(epilog=example("kernel-runner gpu pause H100 --reason 'new driver'"))
def pause(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="TYPE")],
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Those who wait read it.")],
) -> None:
    """Let no host begin jobs of a GPU type.

    What runs goes on, and submissions are still taken. It holds for all names of the type, on all hosts, until
    `gpu resume`.
    """
    with session(context).store() as store:
        changed = store.pause(name, reason=reason)
    note(f"GPU type {name} {'is paused' if changed else 'was paused already'}")


@gpu.command(epilog=example("kernel-runner gpu resume H100"))
def resume(context: typer.Context, *, name: Annotated[str, typer.Argument(metavar="TYPE")]) -> None:
    """Let hosts begin jobs of a paused GPU type again.

    Their daemons look at the queue at once.
    """
    with session(context).store() as store:
        changed = store.resume(name)
    note(f"GPU type {name} {'is served again' if changed else 'was not paused'}")


@gpu.command(
    "detect",
    epilog=example(
        "kernel-runner gpu detect\n"
        "✓ nvidia 0: 'NVIDIA H100 80GB HBM3' is H100: its name matches 'NVIDIA H100( .*)?'\n"
        "✗ nvidia 1: 'NVIDIA GeForce RTX 5090' is of no GPU type (PCI id 10de:2b85)\n"
        "    kernel-runner gpu add NAME --device GPU-0f01a1b2-2b85-4c5d-8e9f-0123456789ab"
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
        Finding(name="devices", mark=Mark.FAILED, found=problem, remedy="see what the driver says: dmesg, nvidia-smi")
        for problem in problems
    ]
    if not findings:
        findings.append(Finding(name="devices", mark=Mark.OK, found="none here; this host serves processor cores"))
    if as_json:
        out_json(
            {
                "devices": [_document(look, registry) for look in looks],
                "problems": list(problems),
                "checks": [one.to_json() for one in findings],
            }
        )
    else:
        for finding in findings:
            out(render_finding(finding))
    bad = any(finding.mark is Mark.FAILED for finding in findings)
    raise typer.Exit(ExitCode.NOT_ACCEPTED if bad else ExitCode.OK)


@gpu.command(
    "add",
    epilog=example(
        "kernel-runner gpu add RTX5090 --device 1 --bandwidth 1792 --l2 96 --peak fp16=419 --dry-run",
    ),
)
def add(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    *,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="D", help="Device of this host: index, UUID or PCI address."),
    ] = None,
    extends: Annotated[str | None, typer.Option("--extends", metavar="T", help="Type to start from.")] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="One line.")] = None,
    alias: Annotated[list[str] | None, typer.Option("--alias", metavar="A", help="Another name; repeatable.")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", help="Devices per slot.")] = None,
    image: Annotated[str | None, typer.Option("--image", metavar="I", help="`host` or an OCI image.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", metavar="GB_S", help="Memory bandwidth, 1e9 bytes per second.")
    ] = None,
    l2: Annotated[float | None, typer.Option("--l2", metavar="MIB", help="L2 cache.")] = None,
    peak: Annotated[
        list[str] | None, typer.Option("--peak", metavar="DTYPE=TFLOPS", help="Dense rate; repeatable.")
    ] = None,
    no_detect: Annotated[
        bool,
        typer.Option("--no-detect", help="Use it only where `slots` names it."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file of that name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the file.")] = False,
) -> None:
    """Write the file of a new GPU type into `gpus_dir`.

    It starts from --device, --extends, or both: that type's settings with this device's name. On a terminal, with
    neither, it asks for everything. Nothing is written if the file is wrong or exists, or if a device of this host
    would match two types. The daemon reads it on reload.
    """
    asks = device is None and extends is None and gpu_add.on_terminal()
    if not asks and (name is None or (device is None and extends is None)):
        lacks = "neither --device nor --extends, expected what the type starts from"
        raise ConfigError(f"gpu add: found {'no NAME, expected what it shall be called' if name is None else lacks}")
    directory = session(context).config.gpus_dir
    looks, problems = look_at_devices()
    chosen = None if device is None else _chosen(looks, problems, device)
    wish = Wish(
        name=name or "",
        extends=extends,
        description=description,
        aliases=tuple(alias or ()),
        count=count,
        image=image,
        detect=not no_detect,
        bandwidth_gb_s=bandwidth,
        l2_mib=l2,
        peak_tflops=dict(_peak(text) for text in peak or ()),
    )
    if asks:
        wish, text, entry = _conversation(looks, problems, directory, wish)
    else:
        text = draft(wish, None if chosen is None else _found(chosen))
        entry = _validated(wish, text, looks, directory)
    path = directory / f"{wish.name}.toml"
    if dry_run or asks:
        out(Text(text.rstrip("\n")))
    if dry_run or (asks and not gpu_add.confirmed(f"write {path}", default=True)):
        return
    _install(path, text, force=force)
    note(f"{path} is written; `systemctl reload kernel-runner` lets the daemon know it")
    for finding in _findings(entry, Registry.load(directory)):
        out(render_finding(finding))


def _validated(wish: Wish, text: str, looks: Sequence[Look], directory: Path) -> GpuType:
    """The type that a file would be.

    Raises:
        ConfigError: the file is wrong, or a device that is here would be of two types.
    """
    with tempfile.TemporaryDirectory() as aside:
        # The name that messages show is the file's own.
        trial = Path(aside) / f"{wish.name if _is_plain(wish.name) else 'type'}.toml"
        trial.write_text(text, encoding="utf-8")
        registry = Registry.load(directory, files=[trial])
    _refuse_two_types(looks, registry)
    return registry.get(wish.name)


def _conversation(
    looks: Sequence[Look], problems: Sequence[str], directory: Path, wish: Wish
) -> tuple[Wish, str, GpuType]:
    """Ask until the answers make a valid type; the answers, the file's text and the type."""
    registry = Registry.load(directory)
    look: Look | None = None
    while True:
        wish, look = gpu_add.ask(
            looks, registry, wish, look, choose=lambda text: _chosen(looks, problems, text), peak=_peak
        )
        text = draft(wish, None if look is None else _found(look))
        try:
            return wish, text, _validated(wish, text, looks, directory)
        except ConfigError as error:
            note(f"{error}\nonce more, with these answers as they were:")


def _install(path: Path, text: str, *, force: bool) -> None:
    """Put a file in its place, as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".new", encoding="utf-8") as fresh:
            fresh.write(text)
            fresh.flush()
            os.fchmod(fresh.fileno(), 0o644)
            if force:
                path.unlink(missing_ok=True)
            # Unlike a rename this replaces nothing, even if another process writes that file now.
            os.link(fresh.name, path)
    except FileExistsError as error:
        raise ConfigError(f"{path} exists and was not changed; --force replaces it") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; run it as a user who may") from error


def _registered(entry: GpuType, registry: Registry) -> dict[str, Any]:
    return {**asdict(entry), "file": str(registry.origin(entry.name))}


def _why(look: Look, entry: GpuType) -> str:
    pattern = next((each for each in entry.device_names if re.fullmatch(each, look.device.name)), None)
    why = f"its name matches {pattern!r}" if pattern is not None else f"its PCI id is {look.device.pci_id}"
    return why if entry.partition is None else f"{why}, and partition {look.device.partition} {entry.partition!r}"


def _single(look: Look, registry: Registry) -> list[GpuType]:
    return [entry for entry in types_of(registry, look.device) if entry.detect and entry.count == 1]


def _recognised(look: Look, registry: Registry) -> Finding:
    """What a device is, or what keeps it from being used."""
    device = look.device
    name = f"{device.vendor} {device.index}"
    what = described(device)
    if look.details is None:
        return Finding(name=name, mark=Mark.FAILED, found=f"{what} does not answer", remedy="reset it or the host")
    types = _single(look, registry)
    if len(types) == 1:
        return Finding(name=name, mark=Mark.OK, found=f"{what} is {types[0].name}: {_why(look, types[0])}")
    if types:
        names = " and ".join(f"{entry.name} ({_why(look, entry)})" for entry in types)
        return Finding(
            name=name,
            mark=Mark.FAILED,
            found=f"{what} is both {names}",
            remedy="set detect = false in all but one of them, or name the device in slots",
        )
    return Finding(
        name=name,
        mark=Mark.FAILED,
        found=f"{what} is of no GPU type (PCI id {device.pci_id or 'unknown'})",
        remedy=f"kernel-runner gpu add NAME --device {device.uuid}",
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


def _chosen(looks: Sequence[Look], problems: Sequence[str], wanted: str) -> Look:
    named = [
        look
        for look in looks
        if wanted.lower() in (look.device.uuid.lower(), (look.device.pci_address or "").lower(), str(look.device.index))
    ]
    if len(named) == 1:
        return named[0]
    if named:
        uuids = ", ".join(f"{look.device.uuid} ({look.device.name})" for look in named)
        raise ConfigError(f"--device: {wanted!r} is several devices: {uuids}; name one by its UUID")
    there = ", ".join(f"{look.device.index} = {look.device.uuid} ({look.device.name})" for look in looks) or "none"
    raise ConfigError("; ".join((f"--device: no device {wanted!r} on this host, found: {there}", *problems)))


def _found(look: Look) -> Found:
    device, details = look.device, look.details or Details()
    return Found(
        vendor=Vendor(device.vendor),
        name=device.name,
        pci_id=device.pci_id,
        partition=device.partition,
        architecture=details.architecture,
        memory_bytes=details.memory_bytes,
    )


def _peak(text: str) -> tuple[str, float]:
    dtype, _, rate = text.partition("=")
    try:
        return dtype, float(rate)
    except ValueError:
        raise ConfigError(f"--peak: found {text!r}, expected a data type and a rate, such as fp16=989.4") from None


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+", name) is not None


def _refuse_two_types(looks: Sequence[Look], registry: Registry) -> None:
    for look in looks:
        types = _single(look, registry)
        if len(types) > 1:
            raise ConfigError(
                f"device {described(look.device)} would be of GPU types {', '.join(entry.name for entry in types)}; "
                "expected one: add --no-detect, or give the type the name of the one it replaces"
            )


@gpu.command(
    "validate",
    epilog=example("kernel-runner gpu validate RTX5090.toml"),
)
def validate(
    context: typer.Context,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check files of GPU types.

    Each FILE is checked as if it lay in `gpus_dir`, in place of that type's file; without FILE, those in `gpus_dir`. A
    mistake is an error (exit code 2); what is incomplete or implausible is a warning. Needs neither device nor
    database.
    """
    given = files or ()
    directory = session(context).config.gpus_dir
    registry = Registry.load(directory, files=given)
    asked = [entry for entry in registry.all() if _is_asked(registry.origin(entry.name), given)]
    findings = [finding for entry in asked for finding in _findings(entry, registry)]
    if not asked:
        findings.append(Finding(name="gpu types", mark=Mark.OK, found=f"the built-in ones; no files in {directory}"))
    if as_json:
        out_json({"ok": True, "types": [entry.name for entry in asked], "checks": [one.to_json() for one in findings]})
    else:
        for finding in findings:
            out(render_finding(finding))
    raise typer.Exit(verdict_of(findings))


@gpu.command(
    "test",
    epilog=example("kernel-runner gpu test CPU"),
)
def self_test(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="T", help="GPU type of this host.", show_default="each")] = None,
    *,
    every_slot: Annotated[bool, typer.Option("--every-slot", help="Test all slots of a type.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Test whether this host can measure.

    Runs a task of its own as a submission, in a real sandbox, on one slot of each GPU type. Run it only while no daemon
    uses the slot: nothing else keeps the two apart. Lines (exit code 1 if one fails, 3 without engine or device):

    - `sandbox sees`: exactly the slot's devices and cores; the number of attested settings.

    - `copy`: GB/s of a copy of 512 MiB. Below 0.6 of the type's bandwidth warns; above 1.2 fails, because the type's
    figure is wrong and right results would be refused.

    - `matmul`: TFLOP/s of 8192 by 8192 matrices in torch, in fp16, bf16 and fp32 as far as the type states them. Below
    0.35 warns; above 1.5 fails.

    - `noise`: half the distance from the tenth to the ninetieth percentile of an operation's times. Above 5 % of the
    median warns.

    - a device: clocks, temperature, power and throttling afterwards.

    Without devices the operations are small (4 MiB, 256 by 256) and lie in caches.
    """
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    slots = slots_to_test(registry, config, name, every=every_slot)
    results = []
    with local_evaluator(config, registry) as (evaluator, cancel):
        for slot in slots:
            results.append(try_slot(evaluator, registry.get(slot.gpu_type), slot, cancel=cancel))
            if not as_json:
                out(Text(f"{slot.gpu_type}, slot {slot.name}"))
                for finding in results[-1].findings:
                    out(render_finding(finding))
    findings = [finding for result in results for finding in result.findings]
    code = verdict_of(findings)
    if as_json:
        out_json({"ok": code is ExitCode.OK, "slots": [result.to_json() for result in results]})
    raise typer.Exit(code)


@gpu.command(
    "clocks",
    epilog=example(
        "kernel-runner gpu clocks",
        "sudo kernel-runner gpu clocks --lock",
    ),
)
def clocks(
    context: typer.Context,
    *,
    lock: Annotated[
        bool,
        typer.Option("--lock", help="Lock NVIDIA's clocks there; cap AMD's (performance determinism)."),
    ] = False,
    release: Annotated[bool, typer.Option("--release", help="Return them to the driver.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show or lock the clocks at which devices are measured.

    Shows the clocks that the slots' GPU types demand (docs/adding-a-gpu-type.md#clocks), the clocks now, and the
    highest. An idle device lowers its clocks, which is no fault. The daemon cannot lock clocks; calls at other clocks
    do not count.

    --lock and --release need root and skip devices without a demand. Release before you remove a demand. A lock lasts
    until the driver is reloaded, or without persistence mode until no process has the device open; the service can
    renew it (docs/operations.md#clocks-that-are-locked). Exits with 1 if a device does not answer, or refuses or never
    reaches a clock.
    """
    if lock and release:
        raise ConfigError("gpu clocks: found --lock and --release, expected one of them at most")
    if (lock or release) and os.geteuid() != 0:
        raise ConfigError(
            f"gpu clocks: found user {os.geteuid()}, expected root, the only user whom drivers let change clocks: "
            f"run it as root, or at each start of the daemon by {gpu_clocks.AT_BOOT}"
        )
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    demands = gpu_clocks.demands_of(detect_slots(registry, config), registry)
    wanted = {uuid: demand.clocks for uuid, demand in demands.items() if demand.clocks.locks}
    refusals = set_clocks(wanted, lock=lock) if lock or release else {}
    looks, problems = look_at_devices()
    findings = [
        Finding(name="devices", mark=Mark.FAILED, found=problem, remedy="see what the driver says: dmesg, nvidia-smi")
        for problem in problems
    ]
    devices = []
    for look in looks:
        uuid = look.device.uuid
        demand = demands.get(uuid, gpu_clocks.Demand())
        refusal = refusals.get(uuid)
        findings += (
            gpu_clocks.outcome_of(look, demand, refusal, lock=lock)
            if lock or release
            else gpu_clocks.state_of(look, demand)
        )
        devices.append(gpu_clocks.document(look, demand, refusal))
    if not findings:
        findings.append(Finding(name="devices", mark=Mark.OK, found="none here, so no clocks"))
    if as_json:
        out_json({"devices": devices, "problems": list(problems), "checks": [one.to_json() for one in findings]})
    else:
        for finding in findings:
            out(render_finding(finding))
    raise typer.Exit(verdict_of(findings))


def _is_asked(origin: Path | None, files: Sequence[Path]) -> bool:
    return origin in files if files else origin is not None and origin.parent != BUILTIN


def _findings(entry: GpuType, registry: Registry) -> Iterator[Finding]:
    device = entry.device
    known = [
        f"{entry.count} x {entry.vendor}" if entry.count > 1 else entry.vendor.value,
        *([f"{device.memory_gib:g} GiB"] if device.memory_gib is not None else []),
        *([f"{device.bandwidth_gb_s:g} GB/s"] if device.bandwidth_gb_s is not None else []),
        *(f"{dtype} {rate:g}" for dtype, rate in device.peak_tflops.items()),
        *([f"SM at {entry.clocks.sm_mhz} MHz"] if entry.clocks.sm_mhz is not None else []),
        *([f"memory at {entry.clocks.memory_mhz} MHz"] if entry.clocks.memory_mhz is not None else []),
    ]
    yield Finding(name=entry.name, mark=Mark.OK, found=f"{', '.join(known)} ({registry.origin(entry.name)})")
    for advice in advise(entry):
        yield Finding(name=entry.name, mark=Mark.WARNING, found=advice.found, remedy=advice.remedy)
