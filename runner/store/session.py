"""The only place that opens a connection to PostgreSQL, and the settings that every session of ours has.

How text on the wire reads, and how the server reads our statements, is set for a session by the server, the database,
the role, `PGOPTIONS`, `PGDATESTYLE`, `PGTZ`, `PGCLIENTENCODING`, a service file or the address. So each connection sets
`WIRE` after connecting: that outranks them all. A pooler may hand each transaction to another session, which other
programs use, too: there they are set in each transaction, for that alone, and no statement is prepared. Whether one is
in between shows in each connection: the process that it would cancel is not the one that answers.

PostgreSQL holds values that Python has none for: infinite times, years before 1 and after 9999, JSON that is too deep.
Every connection loads them: a row that somebody else wrote must not spoil the list that it stands in.

Called by the other modules of `runner.store`, and by the reader of data exports for what it tells its own driver.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row, scalar_row
from psycopg.types.json import set_json_loads

from runner.base.database_address import fault, is_clear
from runner.base.errors import ConfigError, DatabaseUnavailableError
from runner.base.model import ALWAYS, NEVER
from runner.store.queries import QUERIES

if TYPE_CHECKING:
    # An extra, for the gateway and for the client of batches.
    from psycopg_pool import AsyncConnectionPool

_C = TypeVar("_C", bound=psycopg.Connection[Any])

#: The driver and our statements rely on these, whatever else is set; as the server shows them.
WIRE: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # How the server reads literals and arrays.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    # Nothing that another login has made is called by mistake: where `public` is open to all, as before PostgreSQL 15,
    # a function there with closer types would be. And `migrate` compares what the server writes of views and functions.
    "search_path": "pg_catalog, pg_temp",
    "quote_all_identifiers": "off",
    # The queue's locking relies on it.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # To compile a statement of ours takes longer than to execute it: the ranking of a new board, by a second.
    "jit": "off",
    # A server that lacks one of these is not told.
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
}

#: The oldest server whose SQL we write, as libpq numbers versions; the tests also need 15.
OLDEST_SERVER: Final = 14_00_00


class Unloadable(dict[str, Any]):
    """Stands for JSON that Python cannot load: an object without keys."""

    def __init__(self, cause: str) -> None:
        super().__init__()
        self.cause = cause


class _Moment(Loader):
    """A time; NEVER and ALWAYS stand for those that Python has no datetime for."""

    def __init__(self, oid: int, context: psycopg.abc.AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        stock = psycopg.adapters.get_loader(oid, self.format)
        if stock is None:
            raise TypeError(f"the driver has no loader of type {oid}")
        self._stock = stock(oid, context)
        self._zoned = oid == _TIMESTAMPTZ

    def load(self, data: Buffer) -> datetime:
        try:
            loaded: datetime = self._stock.load(data)
        except psycopg.DataError:
            loaded = ALWAYS if self.is_early(bytes(data)) else NEVER
            return loaded if self._zoned else loaded.replace(tzinfo=None)
        return loaded

    @staticmethod
    def is_early(data: bytes) -> bool:
        return data.startswith(b"-") or data.endswith(b"BC")


class _BinaryMoment(_Moment):
    format = psycopg.pq.Format.BINARY

    @staticmethod
    def is_early(data: bytes) -> bool:
        # Microseconds since 2000.
        return data[0] >= 0x80


_TIMESTAMPTZ: Final = psycopg.adapters.types["timestamptz"].oid


def load_json(data: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """JSON that somebody else wrote; `Unloadable` where Python has nothing for it."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        return Unloadable(f"{type(error).__name__}: {error}")


def _load_leniently(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    for name in ("timestamptz", "timestamp"):
        for loader in (_Moment, _BinaryMoment):
            connection.adapters.register_loader(name, loader)
    set_json_loads(load_json, context=connection)


def checked(dsn: str) -> Mapping[str, Any]:
    """The parameters of a connection string.

    Raises:
        ConfigError: it cannot be parsed. The message does not repeat it: it may hold a password.
    """
    if is_clear(dsn):
        with suppress(psycopg.ProgrammingError):
            return conninfo_to_dict(dsn)
    reason = fault(dsn, [option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()])
    raise ConfigError(
        f"the database's address cannot be parsed: {f'{reason}; ' if reason else ''}expected postgresql://USER@HOST/"
        "DATABASE or key=value words in DATABASE_URL or database_url"
        f"{'' if reason else ', with @ / ? % and spaces of a URL user and password as %40 %2F %3F %25 %20'}"
    ) from None


def conninfo(dsn: str, *, application_name: str, **defaults: str) -> str:
    """The connection string of a session of ours; `defaults` count where `dsn` says nothing.

    Raises:
        ConfigError: it cannot be parsed.
    """
    given = checked(dsn)
    own = {key: value for key, value in defaults.items() if not given.get(key)}
    return make_conninfo(dsn, **own, application_name=application_name, client_encoding=WIRE["client_encoding"])


def direct_address(dsn: str, direct_host: str | None) -> str:
    """The connection string of the server itself, where `dsn` leads to a pooler and `direct_host` is HOST or HOST:PORT.

    Raises:
        ConfigError: the connection string cannot be parsed.
    """
    if direct_host is None:
        return dsn
    checked(dsn)
    host, colon, port = direct_host.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.endswith("]")):
        # Also an address of IPv6 alone.
        host, port = direct_host, ""
    # An empty hostaddr does not count. Without a port it is the server's usual one, not the pooler's.
    return make_conninfo(dsn, host=host.strip("[]"), hostaddr="", port=port or "5432")


def statement(bounds: Mapping[str, str], *, local: bool = False) -> bytes:
    """The statement that makes the settings, and `bounds` beside them; `local`: for this transaction alone."""
    values = ", ".join(f"('{name}', '{value}')" for name, value in {**WIRE, **bounds}.items())
    return (
        f"SELECT set_config(s.name, s.value, {str(local).lower()}) FROM (VALUES {values}) AS s (name, value) "  # noqa: S608 - our own words
        "WHERE current_setting(s.name, true) IS NOT NULL"
    ).encode()


def connect(
    address: str,
    *,
    bounds: Mapping[str, str],
    connection_class: type[_C],
    opened: Callable[[_C], object] = lambda _: None,
    **named: Any,  # noqa: ANN401 - the driver's own
) -> _C:
    """A connection in autocommit mode; `address` is from `conninfo`. `opened` is told before the first statement.

    One through a pooler has the settings within `scope` alone.

    Raises:
        DatabaseUnavailableError: the server is older than `OLDEST_SERVER`.
    """
    connection = connection_class.connect(address, autocommit=True, **named)
    try:
        opened(connection)
        _require_server(connection)
        _load_leniently(connection)
        answers = connection.cursor(row_factory=scalar_row).execute(QUERIES["backend"].sql).fetchone()
        if answers == connection.info.backend_pid:
            connection.execute(statement(bounds))
        else:
            connection.prepare_threshold = None
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    except BaseException:
        connection.close()
        raise
    return connection


def _require_server(connection: psycopg.Connection[Any]) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        version = connection.info.parameter_status("server_version")
        raise DatabaseUnavailableError(
            f"the server is PostgreSQL {version}, expected {OLDEST_SERVER // 10_000} or later; name another one in the "
            "database's address, or upgrade it"
        )


def is_pooled(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether it leads to a pooler: it has no session, so each transaction names its isolation level."""
    return connection.isolation_level is not None


@contextmanager
def scope(connection: psycopg.Connection[Any], *, bounds: Mapping[str, str]) -> Iterator[None]:
    """Use a connection: one through a pooler in one transaction that begins with the settings."""
    if not is_pooled(connection):
        yield
        return
    with connection.transaction():
        connection.execute(statement(bounds, local=True))
        yield


async def connect_async(address: str, *, bounds: Mapping[str, str]) -> psycopg.AsyncConnection[Any]:
    """As `connect`, for coroutines."""
    connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
    try:
        await _set_up(connection, bounds)
    except BaseException:
        await connection.close()
        raise
    return connection


async def _set_up(connection: psycopg.AsyncConnection[Any], bounds: Mapping[str, str]) -> None:
    _load_leniently(connection)
    answered = await connection.cursor(row_factory=scalar_row).execute(QUERIES["backend"].sql)
    if await answered.fetchone() == connection.info.backend_pid:
        await connection.execute(statement(bounds))
    else:
        connection.prepare_threshold = None
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)


@asynccontextmanager
async def scope_async(connection: psycopg.AsyncConnection[Any], *, bounds: Mapping[str, str]) -> AsyncIterator[None]:
    """As `scope`, for coroutines."""
    if not is_pooled(connection):
        yield
        return
    async with connection.transaction():
        await connection.execute(statement(bounds, local=True))
        yield


def pool(
    address: str,
    *,
    bounds: Mapping[str, str],
    **named: Any,  # noqa: ANN401 - the pool's own
) -> AsyncConnectionPool[psycopg.AsyncConnection[dict[str, Any]]]:
    """A pool of such connections, for coroutines; not open yet."""
    from psycopg_pool import AsyncConnectionPool

    return AsyncConnectionPool(
        address,
        connection_class=psycopg.AsyncConnection[dict[str, Any]],
        kwargs={"autocommit": True, "row_factory": dict_row},
        configure=lambda connection: _set_up(connection, bounds),
        open=False,
        **named,
    )


def misread(connection: psycopg.Connection[Any]) -> Sequence[str]:
    """The settings of a session that are not as `WIRE` says, as sentences."""
    asked = connection.cursor(row_factory=scalar_row).execute(QUERIES["session_settings"].sql, {"names": list(WIRE)})
    values: Mapping[str, str] = asked.fetchone() or {}
    return [f"{name} is {value!r}, expected {WIRE[name]!r}" for name, value in values.items() if value != WIRE[name]]


def require_wire(connection: psycopg.Connection[Any]) -> None:
    """Refuse a session that does not have our settings.

    Raises:
        DatabaseUnavailableError: which it has instead.
    """
    if faults := misread(connection):
        raise DatabaseUnavailableError(
            f"PostgreSQL: the session does not keep its settings: {'; '.join(faults)}; something between here and the "
            "server changes them, such as a pooler in transaction mode (set direct_host to the server itself)"
        )
