"""Points in time as people type them; called by the commands that take one."""

from __future__ import annotations

from datetime import datetime

import typer

from runner.store import Store


def moment_of(store: Store, text: str, option: str) -> datetime:
    """A point in time as it was typed. Spans are read by the database, whose clock all times are of.

    Raises:
        typer.BadParameter: it is no time, or has no time zone; names `option`.
        SubmissionError: it is no span.
    """
    typed = text.strip()
    if typed.endswith("ago"):
        return store.moment(typed)
    if typed.startswith("in "):
        return store.moment(typed.removeprefix("in "))
    try:
        moment = datetime.fromisoformat(typed)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write it like 2026-05-01T12:00Z, or like '2 hours ago' or 'in 2 hours'",
            param_hint=option,
        ) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} has no time zone; add one, as in {moment.isoformat()}Z for UTC or {moment.isoformat()}+02:00",
            param_hint=option,
        )
    return moment
