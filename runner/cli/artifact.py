"""`artifact`: a file that a run left, such as a profiler's trace."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from runner.cli.app import app, example, note, session
from runner.cli.safe import one_line


@app.command(epilog=example("kernel-runner artifact 3", "kernel-runner artifact 3 --output trace.json.gz"))
def artifact(
    context: typer.Context,
    artifact_id: Annotated[int, typer.Argument(metavar="ID", help="Number of a file, as `status` shows it.")],
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it; the file's own name here if absent.")
    ] = None,
) -> None:
    """Save a file that a run left.

    Profiles leave traces: open `*.trace.json.gz` in Perfetto or chrome://tracing, `*.ncu-rep` in Nsight Compute. Files
    are kept for 30 days. An existing file is not overwritten.
    """
    with session(context).store() as store:
        found = store.artifact(artifact_id)
    # A submission's process has a say in what it holds, and none in where it goes.
    target = output or Path(PurePosixPath(found.name).name)
    try:
        with target.open("xb") as file:
            file.write(found.data)
    except FileExistsError as error:
        raise typer.BadParameter(f"{target} exists already; name another file", param_hint="--output") from error
    note(f"{len(found.data)} bytes written to {one_line(str(target))}")
