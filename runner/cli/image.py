"""`image check`: what submissions find in an image. `docker build` makes images from the recipes in `sandbox/image`."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.base.errors import ConfigError
from runner.cli.app import ExitCode, app, example, out, out_json, session
from runner.cli.finding import render as render_finding
from runner.cli.finding import verdict_of
from runner.cli.image_check import examine
from runner.gpu_types import Registry
from sandbox.host.engine import DockerEngine

image = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Images: the root file systems that submissions run in."
)
app.add_typer(image, name="image")

_HOST = "host"


@image.command(
    "check",
    epilog=example(
        "kernel-runner image check kernel-runner/cuda --gpu H100",
        "kernel-runner image check --gpu CPU",
    ),
)
def check_image(
    context: typer.Context,
    reference: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="Image, or `host`.", show_default="that of --gpu")
    ] = None,
    *,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="T", help="GPU type that the image is for.", show_default="those that name it"),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="Interpreter in the image.", show_default="`image_python` of the type"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what submissions will find in an image.

    Starts a container as for a submission, with all its protections but without devices, on the last core. Shows
    Python, torch and its CUDA or ROCm, compilers, Triton, CUTLASS, other packages and profilers, and for a GPU type
    whether torch and compiler know its architecture.

    Without --gpu it is judged for each type that names the image, or if none does as for CPUs. Exits with 1 if
    submissions cannot run in it (no Python 3.11, no torch, another vendor's torch), 3 without an engine.
    """
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    if reference is None and gpu is None:
        raise ConfigError("image check: found neither IMAGE nor --gpu, expected one of them at least")
    if gpu is not None:
        types = [registry.get(gpu)]
    else:
        types = [entry for entry in registry.all() if entry.image == reference != _HOST] or [registry.get("CPU")]
    results = []
    with DockerEngine(config.docker_host, owner=f"{config.host_name}/image") as engine:
        for entry in types:
            findings, answer = examine(engine, config, reference or entry.image, python or entry.image_python, entry)
            results.append((entry, findings, answer))
            if not as_json:
                out(f"{reference or entry.image} for {entry.name}")
                for finding in findings:
                    out(render_finding(finding))
    code = verdict_of([finding for _, findings, _ in results for finding in findings])
    if as_json:
        checked = [
            {"gpu_type": entry.name, "found": answer, "checks": [finding.to_json() for finding in findings]}
            for entry, findings, answer in results
        ]
        out_json({"ok": code is ExitCode.OK, "image": reference or types[0].image, "checked": checked})
    raise typer.Exit(code)
