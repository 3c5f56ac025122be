"""The database as guests use it that serve many at a time: a pool of connections for coroutines.

Each statement is one transaction of its own, so it can be sent again. An outage is waited out for `PATIENCE_S`; then
`DatabaseUnavailableError`. What a function of the schema refuses is `RefusedError` with its SQLSTATE. The statements
are a guest's own, and those of `queries.sql` beside this file.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from runner.base.errors import ConfigError, DatabaseUnavailableError, SubmissionError
from runner.extras.queries import SHARED
from runner.store import schema, session
from runner.store.clean import fit
from runner.store.connection import FORGOTTEN, Row, translated
from runner.store.queries import Query

_T = TypeVar("_T")
_Connection = psycopg.AsyncConnection[Row]

#: How long a request waits for a database that is away.
PATIENCE_S: Final = 28.0
_TRANSPORT: Final = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "15",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_BOUNDS: Final = {
    "statement_timeout": "25s",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "30s",
}
#: Longer than statement_timeout: a server that answers nothing counts as away.
_ANSWER_S: Final = 27.0
_PAUSE_S: Final = 0.5


class RefusedError(SubmissionError):
    """A function of the schema refused; `code` is its SQLSTATE, of class KR."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        self.code = code
        #: The message without the hint.
        self.message = message
        self._hint = hint
        super().__init__(f"{message}. {hint}" if hint else message)

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str, str]]:
        # A pool of processes waits for ever for an error that cannot be made again.
        return type(self), (self.code, self.message, self._hint)


class AsyncStore:
    """Connections of a guest. `open` before, `close` after; both in the event loop that uses it."""

    def __init__(
        self,
        dsn: str,
        *,
        queries: Mapping[str, Query],
        connections: int,
        name: str,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`name`: what the server knows the connections by."""
        self._queries = {**SHARED, **queries}
        self._patience_s = patience_s
        self._address = session.conninfo(dsn, application_name=name, **_TRANSPORT)
        self._pool = session.pool(
            self._address,
            bounds=_BOUNDS,
            min_size=1,
            max_size=connections,
            timeout=5.0,
            reconnect_timeout=10.0,
            max_lifetime=1800.0,
            name=name,
        )

    async def open(self) -> None:
        """Start the pool; a database that is away is waited for later."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(timeout=2.0)

    async def all(self, name: str, /, **values: object) -> Sequence[Row]:
        """Every row of a statement, sent again through outages for at most `PATIENCE_S`.

        Raises:
            RefusedError: a function of the schema refused.
            DatabaseUnavailableError: the outage lasts, or the schema is not this release's, or a right is missing.
        """
        return await self._patiently(lambda connection: _rows(connection, self._queries[name], values))

    async def one(self, name: str, /, **values: object) -> Row | None:
        """The first row of a statement; None if there is none. Otherwise as `all`."""
        records = await self.all(name, **values)
        return records[0] if records else None

    async def row(self, name: str, /, **values: object) -> Row:
        """The row of a statement that always has one. Otherwise as `all`."""
        (record,) = await self.all(name, **values)
        return record

    async def begin(self, role: str, name: str, /, **values: object) -> Sequence[Row]:
        """As `all`, for the first statement of a service, whose login needs a role.

        Raises:
            ConfigError: it has not the rights.
        """
        try:
            return await self.all(name, **values)
        except DatabaseUnavailableError as error:
            if not isinstance(error.__cause__, psycopg.ProgrammingError):
                raise
            raise ConfigError(
                f"the login of DATABASE_URL cannot do what this service needs ({_reason(error.__cause__)}): expected "
                f"one with the role {role}, after `kernel-runner migrate --roles` of this release"
            ) from None

    async def ready(self) -> bool:
        """Whether the database answers within two seconds and has this release's version."""
        try:
            async with asyncio.timeout(2.0):
                async with self._pool.connection(timeout=1.5) as connection:
                    records = await _rows(connection, SHARED["readiness"], {})
        except (psycopg.Error, TimeoutError):
            return False
        return [row["version"] for row in records] == [schema.versions()[-1]]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncIterator[str]]:
        """The payloads of events, as they come. Leaves with `DatabaseUnavailableError` when the connection breaks."""
        try:
            connection = await session.connect_async(self._address, bounds=_BOUNDS)
        except psycopg.Error as error:
            raise DatabaseUnavailableError(f"PostgreSQL: {error}") from error
        try:
            await connection.execute(SHARED["listen_events"].sql)
            yield _payloads(connection)
        except psycopg.Error as error:
            raise DatabaseUnavailableError(f"PostgreSQL: {error}") from error
        finally:
            await connection.close()

    async def _patiently(self, action: Callable[[_Connection], Awaitable[_T]]) -> _T:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                async with self._pool.connection(timeout=5.0) as connection:
                    return await action(connection)
            except PoolClosed as error:
                raise DatabaseUnavailableError("this process is going down") from error
            except psycopg.Error as error:
                if (error.sqlstate or "").startswith("KR"):
                    raise _refused(error) from error
                if not _passes(error):
                    # Without a table, a function or a right the database counts as away: tasks that look again go on.
                    raise translated(error) from error
                if time.monotonic() > until:
                    raise DatabaseUnavailableError(f"PostgreSQL: {_reason(error)}") from error
            except TimeoutError as error:
                raise DatabaseUnavailableError("PostgreSQL does not answer") from error
            await asyncio.sleep(random.uniform(0.2, 1.0) * _PAUSE_S)  # noqa: S311 - those who wait come back spread out


async def _rows(connection: _Connection, query: Query, values: Mapping[str, object]) -> Sequence[Row]:
    parameters = {key: fit(value) for key, value in values.items()}
    try:
        async with asyncio.timeout(_ANSWER_S), session.scope_async(connection, bounds=_BOUNDS):
            cursor = await connection.execute(query.sql, parameters)
            return await cursor.fetchall() if cursor.description is not None else ()
    except (psycopg.errors.ReadOnlySqlTransaction, *FORGOTTEN):
        # Another connection may lead to another server, or begin with other settings.
        await connection.close()
        raise


async def _payloads(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[str]:
    async for note in connection.notifies():
        yield note.payload


def _passes(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed later: an outage, or given up for another transaction's sake."""
    if isinstance(error, (PoolTimeout, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction, *FORGOTTEN)):
        return True
    # 54: a value exceeds a limit of the server, each time.
    return isinstance(error, psycopg.OperationalError) and not (error.sqlstate or "").startswith("54")


def _reason(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip() or type(error).__name__


def _refused(error: psycopg.Error) -> RefusedError:
    return RefusedError(error.sqlstate or "", error.diag.message_primary or str(error), error.diag.message_hint or "")
