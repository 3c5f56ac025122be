"""Points in time as people type them; called by the commands that take one."""

from __future__ import annotations

from datetime import datetime

import typer

from runner.base.dates import DateError, read_date
from runner.store import Store


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
