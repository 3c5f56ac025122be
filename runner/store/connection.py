"""One PostgreSQL connection that comes back: opened when needed, thrown away when it breaks.

Called by `runner.store.store` only. Turns the driver's errors into ours; knows no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from runner.errors import DatabaseUnavailableError, NotFoundError, SubmissionError
from runner.store.queries import Query

Row = dict[str, Any]

#: Nothing the store sends takes long; what does is stuck, and a stuck daemon is worse than a failed statement.
_SESSION: Final = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}
#: A peer that vanished is noticed within about 45 s.
_TRANSPORT: Final = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "15",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "45000",
}
#: The class of the SQLSTATEs our functions raise.
_OURS: Final = "KR"
_UNKNOWN_SUBMISSION: Final = "KR015"


class Link:
    """A connection in autocommit mode, confined to one thread."""

    def __init__(self, dsn: str, *, application_name: str) -> None:
        given = conninfo_to_dict(dsn)
        options = " ".join([str(given.get("options") or ""), *(f"-c {key}={value}" for key, value in _SESSION.items())])
        self._conninfo = make_conninfo(
            dsn,
            **{**_TRANSPORT, **{key: value for key, value in given.items() if key in _TRANSPORT and value}},
            options=options.strip(),
            application_name=application_name,
        )
        self._connection: psycopg.Connection[Row] | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection that has not been seen to fail."""
        return self._connection is not None and not self._connection.closed

    def close(self) -> None:
        """Close the connection, if there is one; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def open(self) -> Iterator[psycopg.Connection[Row]]:
        """The connection, opened if need be; the driver's errors leave as ours.

        Raises:
            DatabaseUnavailableError: it cannot be reached, went away, or gave up waiting for a lock.
            SubmissionError: one of our functions refused.
            NotFoundError: one of our functions knows no such submission.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.Connection[Row].connect(
                    self._conninfo, autocommit=True, row_factory=dict_row
                )
            yield self._connection
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise DatabaseUnavailableError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error
        except psycopg.DatabaseError as error:
            if (error.sqlstate or "").startswith(_OURS):
                raise _refusal(error) from error
            raise

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Row]]:
        """As `open`, in a transaction that commits at the end and rolls back on any exception."""
        with self.open() as connection, connection.transaction():
            yield connection

    def all(self, query: Query, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]:
        """Every row of a statement, in its own transaction."""
        with self.open() as connection:
            return rows(connection, query, parameters)

    def one(self, query: Query, parameters: Mapping[str, Any] | None = None) -> Row | None:
        """The first row of a statement, in its own transaction; None if there is none."""
        with self.open() as connection:
            return row(connection, query, parameters)


def rows(
    connection: psycopg.Connection[Row], query: Query, parameters: Mapping[str, Any] | None = None
) -> Sequence[Row]:
    """Every row of a statement; empty for one that returns none."""
    cursor = connection.execute(query.sql, parameters)
    return cursor.fetchall() if cursor.description is not None else ()


def row(connection: psycopg.Connection[Row], query: Query, parameters: Mapping[str, Any] | None = None) -> Row | None:
    """The first row of a statement; None if there is none."""
    found = rows(connection, query, parameters)
    return found[0] if found else None


def _refusal(error: psycopg.DatabaseError) -> SubmissionError | NotFoundError:
    message = error.diag.message_primary or str(error)
    text = f"{message}. {error.diag.message_hint}" if error.diag.message_hint else message
    return NotFoundError(text) if error.sqlstate == _UNKNOWN_SUBMISSION else SubmissionError(text)
