"""`gpu add`: the file of a new GPU type, from a device of this host, from another type, or from both."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from runner.cli import gpu_questions
from runner.cli.app import example, note, out, session
from runner.cli.finding import Finding, Mark
from runner.cli.finding import render as render_finding
from runner.cli.gpu_detect import types_alone
from runner.devices import Details, Look, described, look_at_devices
from runner.errors import ConfigError
from runner.gpu_types import Dtype, Found, GpuType, Registry, Vendor, Wish, advise, draft

#: A part of the group `gpu`.
commands = typer.Typer()


@commands.command(
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
    asks = device is None and extends is None and gpu_questions.on_terminal()
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
        bandwidth_gb_s=_figure("--bandwidth", bandwidth),
        l2_mib=_figure("--l2", l2),
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
    if dry_run or (asks and not gpu_questions.confirmed(f"write {path}", default=True)):
        return
    _install(path, text, force=force)
    note(f"{path} is written; `systemctl reload kernel-runner` lets the daemon know it")
    for finding in findings_of(entry, Registry.load(directory)):
        out(render_finding(finding))


def _validated(wish: Wish, text: str, looks: Sequence[Look], directory: Path) -> GpuType:
    """The type that a file would be.

    Raises:
        ConfigError: the file is wrong, or a device that is here would be of two types.
    """
    with tempfile.TemporaryDirectory() as aside:
        trial = Path(aside) / f"{wish.name if _is_plain(wish.name) else 'type'}.toml"
        trial.write_text(text, encoding="utf-8")
        try:
            registry = Registry.load(directory, files=[trial])
        except ConfigError as error:
            # The folder is gone when the message is read.
            raise ConfigError(str(error).replace(f"{aside}/", "")) from error
    _refuse_two_types(looks, registry)
    return registry.get(wish.name)


def _conversation(
    looks: Sequence[Look], problems: Sequence[str], directory: Path, wish: Wish
) -> tuple[Wish, str, GpuType]:
    """Ask until the answers make a valid type; the answers, the file's text and the type."""
    registry = Registry.load(directory)
    look: Look | None = None
    while True:
        wish, look = gpu_questions.ask(
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
            try:
                # Unlike a rename this replaces nothing, even if another process writes that file now.
                os.link(fresh.name, path)
            except FileExistsError as error:
                raise ConfigError(f"{path} exists and was not changed; --force replaces it") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; run it as a user who may") from error


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


def _figure(option: str, value: float | None) -> float | None:
    if value is not None and not gpu_questions.is_figure(value):
        raise ConfigError(f"{option}: found {value:g}, expected {gpu_questions.FIGURE}")
    return value


def _peak(text: str) -> tuple[str, float]:
    dtype, _, rate = text.partition("=")
    with contextlib.suppress(ValueError):
        found = Dtype(dtype), float(rate)
        if gpu_questions.is_figure(found[1]):
            return found
    raise ConfigError(
        f"--peak: found {text!r}, expected a data type and a rate, such as fp16=989.4; data types are "
        f"{', '.join(Dtype)}, a rate is {gpu_questions.FIGURE}"
    )


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+", name) is not None


def _refuse_two_types(looks: Sequence[Look], registry: Registry) -> None:
    for look in looks:
        types = types_alone(look, registry)
        if len(types) > 1:
            raise ConfigError(
                f"device {described(look.device)} would be of GPU types {', '.join(entry.name for entry in types)}; "
                "expected one: add --no-detect, or give the type the name of the one it replaces"
            )


def findings_of(entry: GpuType, registry: Registry) -> Iterator[Finding]:
    """What a type's file says of its devices, and what it lacks."""
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
