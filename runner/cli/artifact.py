"""`artifact`: a file that a run left, such as a profiler's trace."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from runner.base.errors import DataError
from runner.base.safe import one_line
from runner.cli.app import app, example, note, session
from runner.cli.arguments import possible_id


@app.command(epilog=example("kernel-runner artifact 3 --output trace.json.gz"))
def artifact(
    context: typer.Context,
    artifact_id: Annotated[int, typer.Argument(metavar="ID", callback=possible_id)],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it.", show_default="the file's own name"),
    ] = None,
) -> None:
    """Save a file that a run left; `status` shows its ID.

    Mode `profile` leaves a trace per benchmark (`*.trace.json.gz`, for Perfetto or chrome://tracing) and, on devices,
    the vendor profiler's file (`*.ncu-rep`, `*.kernel_trace.csv`), Nsight Compute also its details as text and CSV.
    Files are kept for 30 days. An existing file is not overwritten.
    """
    with session(context).store() as store:
        stored = store.artifact(artifact_id)
    # A submission's process has a say in what it holds, and none in where it goes.
    target = output or Path(PurePosixPath(stored.name).name.lstrip(".") or f"artifact-{artifact_id}")
    try:
        with target.open("xb") as file:
            try:
                file.write(stored.data)
                file.flush()
            except BaseException:
                target.unlink()
                raise
    except FileExistsError as error:
        raise typer.BadParameter(f"{target} exists already; name another file", param_hint="--output") from error
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}; name another with --output") from error
    note(f"{len(stored.data)} bytes written to {one_line(str(target))}")
