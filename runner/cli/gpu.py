"""`gpu`: the GPU types of the registry and where they are offered."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import app, example, out, out_json, session

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
