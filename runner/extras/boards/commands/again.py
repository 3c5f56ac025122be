"""`failed`, `rerun` and `invalidate`: what to do after a bad GPU, a mended task, a cheat that was found late."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from runner.base.model import Verdict
from runner.base.safe import one_line
from runner.base.units import moment
from runner.cli import json_output
from runner.cli.app import ExitCode, app, console, example, note, out, out_json, session
from runner.cli.arguments import possible_id, typed_date
from runner.cli.render import make_table, verdict_text
from runner.extras.boards.again import FailedLine, MatchLine, ResultStore, Selection
from runner.store import Store

#: Why an evaluation is not made again, in words.
_OBSTACLES: Mapping[str, str] = {
    "open": "left alone: waits or runs",
    "cancelled": "left alone: its user took it back",
    "hacked": "left alone: marked hacked by another program",
    "not offered": "left alone: the leaderboard no longer offers the GPU type",
}
_SubmissionId = Annotated[int | None, typer.Argument(metavar="ID", callback=possible_id)]
_Leaderboard = Annotated[
    str | None, typer.Option("--leaderboard", metavar="L", help="Submitted to L (name or number).")
]
_Host = Annotated[str | None, typer.Option("--host", metavar="H", help="Evaluated on host H.")]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="T",
        help="Evaluated at T or later: `2026-05-01T14:00+02:00` or `'2 hours ago'`.",
    ),
]
_Until = Annotated[str | None, typer.Option("--until", metavar="T", help="Evaluated before T.")]
_Gpu = Annotated[list[str] | None, typer.Option("--gpu", metavar="T", help="GPU type; repeatable.")]
_Verdict = Annotated[list[Verdict] | None, typer.Option("--verdict", help="Verdict of a job; repeatable.")]
_Cause = Annotated[
    str | None,
    typer.Option("--cause", metavar="TEXT", help="TEXT is in a job's error, or in why an attempt gave no result."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(
    epilog=example(
        "kernel-runner rerun 17",
        "kernel-runner rerun --host node1 --since '2 hours ago' --dry-run\n"
        "leaderboard   gpu type   mode          submissions   jobs\n"
        "────────────────────────────────────────────────────────────────────────────────────\n"
        "vectoradd     CPU        leaderboard   12            24\n"
        "vectoradd     CPU        test          1             1      left alone: waits or runs\n"
        "24 jobs; nothing was done",
    )
)
def rerun(
    context: typer.Context,
    *,
    submission_id: _SubmissionId = None,
    leaderboard: _Leaderboard = None,
    host: _Host = None,
    since: _Since = None,
    until: _Until = None,
    gpu: _Gpu = None,
    verdict: _Verdict = None,
    cause: _Cause = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="R", help="Kept with the old results.")] = None,
    priority: Annotated[
        int,
        typer.Option("--priority", metavar="N", min=-1000, max=1000, help="Higher goes first; new submissions have 0."),
    ] = -1,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    as_json: _AsJson = False,
) -> None:
    """Evaluate submissions again.

    Selects ID, or all finished evaluations that match every option given; at least one is required. Prints the number
    of new jobs. For more than one submission it asks first, and without a terminal requires --yes.

    Old results count until the new ones are there. A rerun that is cancelled, or fails without the submission's fault,
    changes nothing. Public and secret job both run again. Left alone: jobs that wait or run, those that the user
    cancelled (unless named by ID), submissions marked hacked by others, and GPU types no longer offered.
    """
    with session(context).open(ResultStore) as store:
        selection = _selection(
            store,
            submission_id=submission_id,
            leaderboard=leaderboard,
            host=host,
            times=(since, until),
            gpu=gpu,
            verdict=verdict,
            cause=cause,
        )
        lines = store.matching(selection)
        jobs = sum(line.jobs for line in lines if line.obstacle is None)
        if dry_run:
            _show(lines, jobs, dry_run=True, counting=False, as_json=as_json)
            return
        if submission_id is None and jobs:
            _ask(f"Evaluate again, as {jobs} jobs?", lines, counting=False, yes=yes)
        # Of a single submission the database says why not, so it is asked even if nothing matches.
        if submission_id is not None or jobs:
            jobs = store.rerun(selection, reason=reason, priority=priority)
    _show(lines, jobs, dry_run=False, counting=False, as_json=as_json)


@app.command(
    epilog=example(
        "kernel-runner invalidate 17 --reason 'reads the clock of the judge'",
    )
)
def invalidate(
    context: typer.Context,
    *,
    submission_id: _SubmissionId = None,
    leaderboard: _Leaderboard = None,
    host: _Host = None,
    since: _Since = None,
    until: _Until = None,
    gpu: _Gpu = None,
    verdict: _Verdict = None,
    cause: _Cause = None,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="The authors read it.")],
    dry_run: _DryRun = False,
    yes: _Yes = False,
    as_json: _AsJson = False,
) -> None:
    """Take results out of the ranking.

    Selects and asks as `rerun` does, and prints the number of jobs. The submission then has no verdict and no score,
    and its author reads the reason. Nothing is deleted; `rerun` brings it back. Jobs that wait or run are left alone.
    """
    with session(context).open(ResultStore) as store:
        selection = _selection(
            store,
            submission_id=submission_id,
            leaderboard=leaderboard,
            host=host,
            times=(since, until),
            gpu=gpu,
            verdict=verdict,
            cause=cause,
        )
        lines = [line for line in store.matching(selection) if line.counting]
        jobs = sum(line.counting for line in lines)
        if dry_run:
            _show(lines, jobs, dry_run=True, counting=True, as_json=as_json)
            return
        if submission_id is None and jobs:
            _ask(f"Take the results of {jobs} jobs out of the ranking?", lines, counting=True, yes=yes)
        if jobs:
            jobs = store.invalidate(selection, reason=reason)
    _show(lines, jobs, dry_run=False, counting=True, as_json=as_json)


def _selection(
    store: Store,
    *,
    submission_id: int | None,
    leaderboard: str | None,
    host: str | None,
    times: tuple[str | None, str | None],
    gpu: Sequence[str] | None,
    verdict: Sequence[Verdict] | None,
    cause: str | None,
) -> Selection:
    """What the options select; `times` are --since and --until as they were typed."""
    since, until = times
    return Selection(
        submission_id=submission_id,
        leaderboard=None if leaderboard is None else store.board_name(leaderboard),
        host=host,
        since=None if since is None else typed_date(store, since, "--since"),
        until=None if until is None else typed_date(store, until, "--until"),
        gpu_types=tuple(gpu or ()),
        verdicts=tuple(verdict or ()),
        cause=cause,
    )


@app.command(epilog=example("kernel-runner failed --since '2 hours ago' --host gpu-07"))
def failed(
    context: typer.Context,
    *,
    leaderboard: _Leaderboard = None,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="Of host H.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", help="At T or later: `2026-05-01T14:00+02:00` or `'2 hours ago'`."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000_000, help="The newest N.")] = 50,
    as_json: _AsJson = False,
) -> None:
    """List attempts that gave no result through no fault of the submission.

    The newest first, with host, slot, reason and what became of the job. `rerun --verdict internal_error` evaluates
    again what ended so. Attempts are listed for as long as events are kept (`retention_days`).
    """
    with session(context).open(ResultStore) as store:
        lines = store.failed(
            limit=limit,
            since=None if since is None else typed_date(store, since, "--since"),
            host=host,
            leaderboard=None if leaderboard is None else store.board_name(leaderboard),
        )
    if as_json:
        out_json([json_output.record(line) for line in lines])
    else:
        out(_failed_table(lines))


def _ask(question: str, lines: Sequence[MatchLine], *, counting: bool, yes: bool) -> None:
    """Have the person agree to what concerns many submissions.

    Raises:
        typer.BadParameter: stdin is no terminal, so there is no one to ask.
        typer.Exit: they do not agree.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is no terminal, so no one can answer; look with --dry-run", param_hint="--yes")
    console(stderr=True).print(_matching_table(lines, counting=counting))
    # Not typer.confirm: part of its question goes to stdout, whatever it is told.
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was done")
        raise typer.Exit(ExitCode.NOT_ACCEPTED)


def _show(lines: Sequence[MatchLine], jobs: int, *, dry_run: bool, counting: bool, as_json: bool) -> None:
    if as_json:
        out_json({"jobs": jobs, "dry_run": dry_run, "matching": [json_output.record(line) for line in lines]})
    elif dry_run:
        out(_matching_table(lines, counting=counting))
        note(f"{jobs} jobs; nothing was done")
    else:
        typer.echo(jobs)


def _failed_table(lines: Sequence[FailedLine]) -> RenderableType:
    """Attempts that gave no result, the newest first, with what became of the job."""
    if not lines:
        return Text("no attempt has failed")
    table = make_table(
        "when (UTC)",
        "submission",
        "leaderboard or batch",
        "gpu type",
        "mode",
        "job",
        "attempt",
        "host",
        "slot",
        "now",
        "why",
    )
    for line in lines:
        table.add_row(
            moment(line.at),
            "-" if line.submission_id is None else str(line.submission_id),
            Text(one_line(line.leaderboard or f"batch {line.batch}")),
            Text(one_line(line.gpu_type)),
            "group" if line.batch is not None else f"{line.mode.value}{', secret' if line.secret else ''}",
            str(line.job_id),
            str(line.attempt),
            Text(one_line(line.host or "-")),
            Text(one_line(line.slot or "-")),
            verdict_text(line.verdict, line.state),
            Text(one_line(line.error or "its host was silent" if line.kind == "reclaimed" else line.error or "-")),
        )
    return table


def _matching_table(lines: Sequence[MatchLine], *, counting: bool) -> RenderableType:
    """What a rerun or, with `counting`, an invalidation concerns, by board, GPU type and mode."""
    if not lines:
        return Text("nothing matches")
    table = make_table("leaderboard", "gpu type", "mode", "submissions", "jobs", "")
    for line in lines:
        left_alone = "" if counting else _OBSTACLES.get(line.obstacle or "", line.obstacle or "")
        table.add_row(
            Text(one_line(line.leaderboard)),
            Text(one_line(line.gpu_type)),
            line.mode.value,
            str(line.evaluations),
            str(line.counting if counting else line.jobs),
            left_alone,
        )
    return table
