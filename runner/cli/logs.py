"""`logs`: the story of one submission, from this host's journal or from the database.

Owns which lines belong to a submission and how they read; prints no output of a submission, and of secret runs no
message unless an administrator asks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from runner.cli.app import ExitCode, app, example, fail, note, out, session
from runner.cli.ids import possible_id
from runner.cli.safe import one_line
from runner.dates import DateError, read_date
from runner.errors import NotFoundError
from runner.model import JobState
from runner.store import EventLine, JobView, SubmissionView
from runner.units import moment

UNIT: Final = "kernel-runner"
#: Fields of a daemon's line that are said in columns of their own, or of every line.
_SAID: Final = frozenset(
    {
        "event",
        "level",
        "timestamp",
        "component",
        "job",
        "submission",
        "attempt",
        "run",
        "leaderboard",
        "gpu_type",
        "mode",
    }
)


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


@app.command(epilog=example("kernel-runner logs 2 --database"))
def logs(
    context: typer.Context,
    *,
    submission_id: Annotated[int, typer.Argument(metavar="ID", callback=possible_id)],
    journal: Annotated[bool, typer.Option("--journal", help="Only this host's journal.")] = False,
    database: Annotated[bool, typer.Option("--database", help="Only the database.")] = False,
    unit: Annotated[str, typer.Option("--unit", metavar="NAME", help="The daemon's systemd unit.")] = UNIT,
    admin: Annotated[bool, typer.Option("--admin", help="Also show why secret runs failed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the history of one submission, oldest line first.

    Reads the daemon's lines in this host's journal, with all fields; if there are none, the database, which knows the
    jobs' steps on all hosts. The output of the submission is in `status`.
    """
    if journal and database:
        fail("--journal and --database exclude each other; without either the journal is looked at first")
        raise typer.Exit(ExitCode.USAGE)
    if not database:
        found = list(of_submission(_journal(unit), submission_id))
        if found or journal:
            if not found:
                raise NotFoundError(
                    f"the journal of this host has no line of unit {unit!r} about submission {submission_id}; expected "
                    "the host that evaluated it and the right to read its journal. Without --journal the database tells"
                )
            _print(found, as_json=as_json)
            return
        note("this host's journal has nothing about it; this is what the database knows")
    with session(context).store() as store:
        lines = story(store.submission(submission_id), store.events(submission_id), admin=admin)
    if as_json:
        for line in lines:
            typer.echo(json.dumps(line.to_json()))
        return
    for line in lines:
        _row(line.at, line.what, line.details)


# -- the journal -----------------------------------------------------------------------------------------------------


def _journal(unit: str) -> Iterator[Mapping[str, Any]]:
    """The lines that a unit's daemon wrote, oldest first; none where there is no journal."""
    program = shutil.which("journalctl")
    if program is None:
        return
    command = [program, "--unit", unit, "--output=json", "--output-fields=MESSAGE", "--no-pager", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as run:
        if run.stdout is not None:
            yield from messages(run.stdout)


def messages(entries: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """The lines of a daemon among a journal's entries."""
    for entry in entries:
        try:
            message = json.loads(entry).get("MESSAGE")
            # The journal gives what it does not take for text as numbers.
            text = bytes(message).decode("utf-8", errors="replace") if isinstance(message, list) else str(message)
            line = json.loads(text)
        except (ValueError, TypeError, AttributeError):
            continue
        if isinstance(line, dict) and isinstance(line.get("event"), str):
            yield line


def of_submission(lines: Iterable[Mapping[str, Any]], submission_id: int) -> Iterator[Mapping[str, Any]]:
    """The lines about a submission: those that name it, and those that name a job of its."""
    jobs: set[object] = set()
    for line in lines:
        if line.get("submission") == submission_id:
            jobs.add(line.get("job"))
        elif line.get("submission") is not None or line.get("job") is None or line["job"] not in jobs:
            continue
        yield line


def _print(lines: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            typer.echo(json.dumps(line))
            continue
        ids = f"job {line['job']}.{line['attempt']} " if "job" in line and "attempt" in line else ""
        fields = ", ".join(f"{key} {value}" for key, value in line.items() if key not in _SAID)
        _row(_moment(line.get("timestamp")), f"{ids}{line['event']}", fields, style=_style(line.get("level")))


def _moment(text: object) -> datetime | None:
    try:
        return read_date(str(text), zone=UTC)
    except DateError:
        return None


def _style(level: object) -> str:
    return {"warning": "yellow", "error": "red"}.get(str(level), "")


def _row(at: datetime | None, what: str, details: str, *, style: str = "") -> None:
    out(Text.assemble((f"{moment(at)}  ", "dim"), (f"{one_line(what):<24}", style), f"  {one_line(details)}".rstrip()))


# -- the database ----------------------------------------------------------------------------------------------------


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
    said: Callable[..., Line] = lambda at, what, details, **more: Line(  # noqa: E731 a line of this job
        at=at, what=f"job {job.id} {what}", details=details, job_id=job.id, **more
    )
    secret = ", secret" if job.secret else ""
    yield said(job.created_at, "queued", f"{job.gpu_type}, {job.mode.value}{secret}{again}")
    if job.started_at is not None:
        last = {"attempt": job.attempt, "host": job.host}
        yield said(job.started_at, "claimed", f"attempt {job.attempt} on {job.host}", **last)
    if job.finished_at is not None:
        word = "cancelled" if job.state is JobState.CANCELLED else "ended"
        hidden = job.secret and not admin
        parts = [None if job.verdict is None else job.verdict.value, None if hidden else job.error]
        yield said(job.finished_at, word, ": ".join(part for part in parts if part), attempt=job.attempt, host=job.host)
    if job.retired_as is not None and job.finished_at is not None:
        yield said(job.finished_at, f"is {job.retired_as}", job.retired_reason or "")


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
