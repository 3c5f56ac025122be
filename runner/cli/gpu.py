"""`gpu`: the GPU types of the registry, what their files lack, and where they are offered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import app, example, out, out_json, session
from runner.cli.check import Finding, Mark, verdict_of
from runner.cli.check import render as render_finding
from runner.gpus import GpuType, Registry, advise
from runner.gpus.registry import BUILTIN

gpu = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="GPU types: what submissions can be evaluated on.")
app.add_typer(gpu, name="gpu")


@gpu.command("list", epilog=example("kernel-runner gpu list", "kernel-runner gpu list --json"))
def list_types(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the GPU types.

    Those that daemons have announced, with their aliases and the number of slots there are for each. This is what the
    database knows, so what a frontend may offer. A type that no host has announced can be put on a leaderboard, but
    submissions to it wait.
    """
    with session(context).store() as store:
        types, hosts = store.gpu_types(), store.hosts()
    if as_json:
        out_json(documents.gpu_types(types, hosts))
    else:
        out(render.gpu_types_table(types, hosts))


@gpu.command(
    "validate",
    epilog=example(
        "kernel-runner gpu validate RTX5090.toml",
        "kernel-runner gpu validate --json",
    ),
)
def validate(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files, before they are installed.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check files of GPU types.

    Each FILE as if it lay in the operator's directory (gpus_dir); without one, the files that do. A mistake is an error
    that names the file, the key, what was found and what is expected. What is valid but incomplete or implausible is a
    warning. Looks at no device and no database. Exits with 0 if there are warnings at most, 2 if a file has a mistake.
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


def _is_asked(origin: Path | None, files: Sequence[Path]) -> bool:
    return origin in files if files else origin is not None and origin.parent != BUILTIN


def _findings(entry: GpuType, registry: Registry) -> Iterator[Finding]:
    device = entry.device
    known = [
        f"{entry.count} x {entry.vendor}" if entry.count > 1 else entry.vendor.value,
        *([f"{device.memory_gib:g} GiB"] if device.memory_gib is not None else []),
        *([f"{device.bandwidth_gb_s:g} GB/s"] if device.bandwidth_gb_s is not None else []),
        *(f"{dtype} {rate:g}" for dtype, rate in device.peak_tflops.items()),
    ]
    yield Finding(name=entry.name, mark=Mark.OK, found=f"{', '.join(known)} ({registry.origin(entry.name)})")
    for advice in advise(entry):
        yield Finding(name=entry.name, mark=Mark.WARNING, found=advice.found, remedy=advice.remedy)
