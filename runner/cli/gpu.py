"""`gpu`: GPU types, where they are offered, what their files lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from runner.base.gpu_types import GpuType, Registry
from runner.base.gpu_types.registry import BUILTIN
from runner.cli import gpu_detect, json_output, render_hosts
from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.finding import Finding, report

gpu = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="GPU types: what submissions can be evaluated on.")
app.add_typer(gpu, name="gpu")
gpu.add_typer(gpu_detect.commands)


@gpu.command("list", epilog=example("kernel-runner gpu list"))
def list_types(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the GPU types that daemons have announced.

    Shows slots on hosts that are up, and waiting jobs. Submissions to a type that no host has announced wait.

    `on hardware` is the day when something of this project last ran on such a device, by the type's file on this host;
    `gpu show` says what ran.
    """
    registry = Registry.load(session(context).config.gpus_dir)
    with session(context).store() as store:
        types, hosts = store.gpu_types(), store.hosts()
    if as_json:
        out_json(json_output.gpu_types(types, hosts, registry))
    else:
        out(render_hosts.gpu_types_table(types, hosts, registry))


@gpu.command("show", epilog=example("kernel-runner gpu show H100"))
def show(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="TYPE", help="One type.", show_default="all")] = None,
) -> None:
    """Print GPU types of this host as JSON: settings, figures, what ran on such a device, and the file of each.

    Reads the built-in types and `gpus_dir`; needs neither device nor database.
    """
    registry = Registry.load(session(context).config.gpus_dir)
    if name is None:
        out_json([_registered(entry, registry) for entry in registry.all()])
    else:
        out_json(_registered(registry.get(name), registry))


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


def _registered(entry: GpuType, registry: Registry) -> dict[str, Any]:
    return {**asdict(entry), "file": str(registry.origin(entry.name))}


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
    findings = [finding for entry in asked for finding in gpu_detect.findings_of(entry, registry)]
    if not asked:
        findings.append(Finding.ok("gpu types", f"the built-in ones; no files in {directory}"))
    report(findings, as_json=as_json, ok=True, types=[entry.name for entry in asked])


def _is_asked(origin: Path | None, files: Sequence[Path]) -> bool:
    return origin in files if files else origin is not None and origin.parent != BUILTIN
