"""What every part of a store stands on: the connection, and small things all of them need.

Called by the other modules of `runner.store` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from runner.base.model import JobState, Mode, Verdict
from runner.store.clean import fit
from runner.store.connection import Link, Row
from runner.store.queries import QUERIES, Query
from runner.store.session import direct_address

#: Column -> what makes of its value what records have.
_TYPES: Final[Mapping[str, Callable[[Any], object]]] = {
    "mode": Mode,
    "state": JobState,
    "verdict": Verdict,
    "gpu_types": tuple,
    "aliases": tuple,
}


class Base:
    """The connection of a store. `_listener` is a second one, opened by `listen` only."""

    def __init__(
        self,
        dsn: str,
        *,
        application_name: str,
        writes: bool = False,
        waiting: Callable[[float], object] | None = None,
        direct_host: str | None = None,
    ) -> None:
        """`writes`: a server that takes none counts as away, as for every daemon.

        `waiting` is called while an answer is waited for, with how many seconds until it is called again at most.

        `direct_host`: the server itself, where `dsn` leads to a pooler in transaction mode.
        """
        self._link = Link(dsn, application_name=application_name, writes=writes, waiting=waiting)
        direct = direct_address(dsn, direct_host)
        self._listener = Link(direct, application_name=f"{application_name} listen", writes=writes, bare=True)

    def close(self) -> None:
        """Close the connections; using the store again opens new ones."""
        self._link.close()
        self._listener.close()

    def board_name(self, given: str) -> str:
        """The name of a leaderboard that a person named by it or by its number; what is neither comes back as it is.

        Where a leaderboard's name is another one's number, the name counts.
        """
        boards = self._all("board_name", given=given)
        return str(boards[0]["name"]) if boards else given

    def _all(self, name: str, /, **values: object) -> Sequence[Row]:
        """Every row of a statement."""
        return self._fetch(QUERIES[name], values)

    def _fetch(self, query: Query, values: Mapping[str, object]) -> Sequence[Row]:
        return self._link.all(query, {name: fit(value) for name, value in values.items()})

    def _one(self, name: str, /, **values: object) -> Row:
        """The row of a statement that always returns one."""
        return expect(next(iter(self._all(name, **values)), None))

    def ping(self) -> None:
        """A round trip to the database."""
        self._all("ping")


def expect(row: Row | None) -> Row:
    """The row of a statement that always returns one."""
    if row is None:
        raise RuntimeError("a statement that always returns a row returned none")
    return row


def typed(row: Row) -> dict[str, Any]:
    """The columns of a row as records have them: words as enums, arrays as tuples."""
    return {name: _TYPES[name](value) if name in _TYPES and value is not None else value for name, value in row.items()}


def text_array(texts: Iterable[str]) -> str:
    """A parameter for a text[] that is sent often: as PostgreSQL writes it; the driver's own way is slow."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"
