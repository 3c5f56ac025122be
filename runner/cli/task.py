"""`task`: help for authors of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import app, example, out, out_json
from runner.taskdef import load

task = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Task folders: check them before publishing.")
app.add_typer(task, name="task")


@task.command(epilog=example("kernel-runner task check tasks/vectoradd"))
def check(
    *,
    source: Annotated[Path, typer.Argument(metavar="DIR", help="Task folder or .zip of one.", exists=True)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Validate a task folder.

    Every key of task.yml and runner.yml, every file, the cases of each GPU type. An error names the file, the key, what
    was found and what is expected. Nothing is stored and nothing runs; to run a submission against the folder use
    `eval`.
    """
    folder = load(source)
    if as_json:
        out_json(documents.task(folder))
    else:
        out(render.task_page(folder))
