"""`status`: one submission in full, or the queue and what was submitted lately."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import app, example, out, out_json, session
from runner.cli.view import from_store


@app.command(
    epilog=example("kernel-runner status", "kernel-runner status 17", "kernel-runner status 17 --json | jq .verdict")
)
def status(
    context: typer.Context,
    *,
    submission_id: Annotated[int | None, typer.Argument(metavar="ID", help="Number of a submission.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Without ID: how many to list.")] = 20,
    admin: Annotated[
        bool, typer.Option("--admin", help="Show the details of secret runs, failures of ours and the history.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a submission, or the queue.

    Without a number: what runs, what waits, and the latest submissions. For a submission: per job the verdict and why,
    its tests and benchmarks, the end of its output if it failed, where it ran and what the result is worth. Of secret
    runs only verdict and score are shown. Results that were replaced or taken out are listed with the reason.
    """
    with session(context).store() as store:
        if submission_id is None:
            lines = store.queue(limit=limit)
            view = None
        else:
            lines = ()
            history = store.events(submission_id) if admin else ()
            view = from_store(store.submission(submission_id), admin=admin, history=history)
    if view is not None:
        if as_json:
            out_json(view.to_json())
        else:
            out(render.submission_page(view))
    elif as_json:
        out_json(documents.queue(lines))
    else:
        out(render.queue_table(lines))
