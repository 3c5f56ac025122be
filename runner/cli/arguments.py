"""What people type on the command line: files, points in time, ids; with errors that a person understands."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import typer

from runner.base.dates import DateError, read_date
from runner.base.errors import SubmissionError
from runner.base.marks import without_mark
from runner.store import Store

#: The largest submission the database takes; a bigger file is not even read.
MAX_SUBMISSION_BYTES = 1_000_000
#: PostgreSQL's largest `bigint`.
_LARGEST_ID = 2**63 - 1


def read_submission(path: Path) -> bytes:
    """The bytes of a submission; whether they are acceptable is the database's decision.

    Raises:
        SubmissionError: it cannot be read, or is far from acceptable in size.
    """
    try:
        with path.open("rb") as stream:
            code = stream.read(MAX_SUBMISSION_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{path}: {error.strerror}") from error
    if len(code) > MAX_SUBMISSION_BYTES:
        raise SubmissionError(f"{path}: {path.stat().st_size} bytes, a submission has at most {MAX_SUBMISSION_BYTES}")
    return without_mark(code)


def typed_date(store: Store, text: str, option: str) -> datetime:
    """A point in time as it was typed. Spans are read by the database, whose clock all times are of.

    Raises:
        typer.BadParameter: it is no date, or has no time zone; names `option`.
        SubmissionError: it is no span.
    """
    typed = text.strip()
    if typed.endswith("ago"):
        return store.moment(typed)
    if typed.startswith("in "):
        return store.moment(typed.removeprefix("in "))
    try:
        return read_date(typed)
    except DateError as error:
        raise typer.BadParameter(f"{error}; or '2 hours ago', or 'in 2 hours'", param_hint=option) from None


def possible_id(value: int | None) -> int | None:
    """The id, for the `callback` of an argument; its `max` would show the bound in every help text.

    Raises:
        typer.BadParameter: the database has no such number.
    """
    if value is not None and not 0 < value <= _LARGEST_ID:
        raise typer.BadParameter(f"found {value}, expected a number from 1 to {_LARGEST_ID}")
    return value
