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

from runner.errors import ConfigError, DatabaseUnavailableError, NotFoundError, SubmissionError
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
#: What a statement of ours meets on a database that was never migrated, or by another release.
_ELSEWHERE: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)


def checked(dsn: str) -> str:
    """The connection string, if it is one.

    Raises:
        ConfigError: it cannot be parsed. The message does not repeat it: it may hold a password.
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "the database's address cannot be parsed: expected postgresql://USER@HOST/DATABASE or key=value words "
            "in DATABASE_URL or database_url"
        ) from None
    return dsn


class Link:
    """A connection in autocommit mode, confined to one thread."""

    def __init__(self, dsn: str, *, application_name: str) -> None:
        given = conninfo_to_dict(checked(dsn))
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
            DatabaseUnavailableError: it cannot be reached, went away, gave up waiting for a lock, is not migrated, or
                refuses this user.
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
            reason = error.diag.message_primary
            if isinstance(error, _ELSEWHERE):
                raise DatabaseUnavailableError(
                    f"PostgreSQL: {reason}; this database is not migrated, or by another release of kernel-runner "
                    "(run `kernel-runner migrate`, or correct DATABASE_URL)"
                ) from error
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise DatabaseUnavailableError(
                    f"PostgreSQL: {reason}; the database user lacks a right "
                    "(grant it runner_daemon or runner_frontend, see `kernel-runner migrate --roles`)"
                ) from error
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
