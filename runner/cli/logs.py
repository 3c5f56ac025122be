"""`logs`: the history of one submission, from the database, which knows the jobs' steps on all hosts.

Prints no output of a submission, and of secret runs no message unless an administrator asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from runner.base.model import JobState
from runner.base.units import moment
from runner.cli.app import app, example, out, session
from runner.cli.ids import possible_id
from runner.cli.safe import one_line
from runner.store import EventLine, JobView, SubmissionView


@dataclass(frozen=True, kw_only=True)
class Line:
    """One step of a story."""

    at: datetime
    what: str
    details: str
    job_id: int | None = None
    attempt: int | None = None
    host: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "at": self.at.isoformat(),
            "what": self.what,
            "job_id": self.job_id,
            "attempt": self.attempt,
            "host": self.host,
            "detail": self.details,
        }


@app.command(epilog=example("kernel-runner logs 2"))
def logs(
    context: typer.Context,
    *,
    submission_id: Annotated[int, typer.Argument(metavar="ID", callback=possible_id)],
    admin: Annotated[bool, typer.Option("--admin", help="Also show why secret runs failed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the history of one submission, oldest line first.

    It has the steps of its jobs on all hosts. Each host's journal has more (docs/log-events.md); the output of the
    submission is in `status`.
    """
    with session(context).store() as store:
        lines = story(store.submission(submission_id), store.events(submission_id), admin=admin)
    for line in lines:
        if as_json:
            typer.echo(json.dumps(line.to_json()))
        else:
            when, what = f"{moment(line.at)}  ", f"{one_line(line.what):<24}"
            out(Text.assemble((when, "dim"), what, f"  {one_line(line.details)}".rstrip()))


def story(view: SubmissionView, events: Sequence[EventLine], *, admin: bool) -> Sequence[Line]:
    """The events of a submission in the database, oldest first."""
    status = view.status
    lines = [
        Line(
            at=status.submission_time,
            what="submitted",
            details=f"by {status.user_name or status.user_id} to {status.leaderboard}, {status.file_name}",
        )
    ]
    for job in view.jobs:
        lines += _of_job(job, admin=admin)
    secret = {job.id for job in view.jobs if job.secret}
    lines += [_of_event(event, hidden=event.job_id in secret and not admin) for event in events]
    # Python's sort keeps the order of what happened at one moment.
    return sorted(lines, key=lambda line: line.at)


def _of_job(job: JobView, *, admin: bool) -> Iterator[Line]:
    again = "" if job.replaces is None else f", again for job {job.replaces}"
    step: Callable[..., Line] = lambda at, what, details, **more: Line(  # noqa: E731 a line of this job
        at=at, what=f"job {job.id} {what}", details=details, job_id=job.id, **more
    )
    secret = ", secret" if job.secret else ""
    yield step(job.created_at, "queued", f"{job.gpu_type}, {job.mode.value}{secret}{again}")
    if job.started_at is not None:
        last = {"attempt": job.attempt, "host": job.host}
        yield step(job.started_at, "claimed", f"attempt {job.attempt} on {job.host}", **last)
    if job.finished_at is not None:
        word = "cancelled" if job.state is JobState.CANCELLED else "ended"
        hidden = job.secret and not admin
        parts = [None if job.verdict is None else job.verdict.value, None if hidden else job.error]
        yield step(job.finished_at, word, ": ".join(part for part in parts if part), attempt=job.attempt, host=job.host)
    if job.retired_as is not None and job.finished_at is not None:
        yield step(job.finished_at, f"is {job.retired_as}", job.retired_reason or "")


def _of_event(event: EventLine, *, hidden: bool) -> Line:
    details = {key: value for key, value in event.detail.items() if not (hidden and key == "error")}
    where = [
        *(() if event.attempt is None else (f"attempt {event.attempt}",)),
        *(() if event.host is None else (f"on {event.host}",)),
    ]
    return Line(
        at=event.at,
        what=event.kind if event.job_id is None else f"job {event.job_id} {event.kind}",
        details=", ".join([" ".join(where), *(f"{key} {value}" for key, value in details.items())]).strip(", "),
        job_id=event.job_id,
        attempt=event.attempt,
        host=event.host,
    )
