"""`status`: one submission in full, or the queue and what was submitted lately."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import json_output, render, render_submission
from runner.cli.app import app, example, out, out_json, session
from runner.cli.arguments import possible_id
from runner.cli.view import from_store


@app.command(
    epilog=example(
        "kernel-runner status",
        "kernel-runner status 2\n"
        "submission 2  slow.py by bob to vectoradd, 2026-11-20 20:56:27 UTC\n"
        "verdict: wrong_answer   score: -\n\n"
        "CPU, test  wrong_answer   job 3, attempt 1\n"
        "  wrong answer: a result differs from the reference\n"
        "  test                      message\n"
        "  ──────────────────────────────────────────────────────────────────────────────────\n"
        "  n: 1024; seed: 1   pass\n"
        "  n: 4096; seed: 2   fail   12 of 4096 values differ, first at 17: 1.5, expected 2.5\n"
        "  assurance: correctness judge, timing claimed",
    )
)
def status(
    context: typer.Context,
    *,
    submission_id: Annotated[int | None, typer.Argument(metavar="ID", callback=possible_id)] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Submissions to list.")] = 20,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="Also show secret runs, and why attempts ended without a result.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a submission, or the queue.

    Without ID: what runs, what waits, and the latest submissions. With ID: each job's verdict, reason, tests,
    benchmarks and host, and results that no longer count.

    `assurance` says who decided correctness, a process apart from the submission (`judge`) or inside it (`in_process`),
    and what the times are worth (docs/frontends.md#what-a-time-is-worth).

    In JSON, `verdict` is the gravest of `jobs`, null after a cancellation; `score` is the public one that counts. A job
    with `retired_as` does not count. Without --admin these are null: details of secret runs, and `causes`. Other
    keys: docs/frontends.md#wait.
    """
    with session(context).store() as store:
        if submission_id is None:
            lines = store.queue(limit=limit)
            view = None
        else:
            lines = ()
            validations = store.validations(submission_id=submission_id)
            view = from_store(store.submission(submission_id, admin=admin), admin=admin, validations=validations)
    if view is not None:
        if as_json:
            out_json(view.to_json())
        else:
            out(render_submission.submission_page(view))
    elif as_json:
        out_json([json_output.record(line) for line in lines])
    else:
        out(render.queue_table(lines))
