"""Ids on the command line: of a submission, a job or a file."""

from __future__ import annotations

import typer

#: PostgreSQL's largest `bigint`.
_LARGEST = 2**63 - 1


def possible_id(value: int | None) -> int | None:
    """The id, for the `callback` of an argument; its `max` would show the bound in every help text.

    Raises:
        typer.BadParameter: the database has no such number.
    """
    if value is not None and not 0 < value <= _LARGEST:
        raise typer.BadParameter(f"found {value}, expected a number from 1 to {_LARGEST}")
    return value
