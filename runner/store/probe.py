"""Is this database fit for a daemon? Looks, changes nothing.

Tells whether a server answers, whether our schema is there and up to date, and whether notifications arrive. Behind a
pooler in transaction mode a LISTEN is lost, so daemons would find jobs by polling only. Where `direct_host` names the
server, the notifications are tried there. And whether a session keeps the settings that it makes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import dict_row

from runner.base.errors import DatabaseUnavailableError
from runner.store import schema, session
from runner.store.base import expect
from runner.store.connection import BOUNDS, WRITES, Row, row, rows
from runner.store.queries import QUERIES

_CONNECT_TIMEOUT_S = "10"
#: A notification between two sessions of one server takes a millisecond.
_NOTIFY_TIMEOUT_S = 3.0


def hidden_text(tables: Sequence[str]) -> str:
    """That row security hides the rows of tables, and what to do."""
    names = ", ".join([*tables[:3], *(["..."] if len(tables) > 3 else [])])
    return (
        f"row security hides the rows of {len(tables)} tables ({names}) from all logins but their owner's; turn it off "
        "(docs/operations.md#rows-that-only-the-owner-sees)"
    )


@dataclass(frozen=True, kw_only=True)
class DatabaseFacts:
    """What a look at a database found."""

    server_version: str
    database: str
    #: The last migration applied; None for a database without our schema.
    version: str | None
    #: Migrations that `migrate` would apply, oldest first.
    pending: tuple[str, ...]
    #: The database was migrated by a release that knows more than this one.
    newer: bool
    #: Notifications arrive.
    direct: bool
    #: Settings that a session of ours makes and does not keep, as sentences.
    misread: tuple[str, ...] = ()
    #: Our tables whose rows row security hides from this login.
    hidden: tuple[str, ...] = ()
    #: Triggers of others on our tables that find no name without a schema, and what they call.
    unpinned_triggers: tuple[str, ...] = ()
    #: How many connections the server gives to logins without special rights, and how many of all kinds there are.
    connections: int
    connected: int
    #: How many of them this database and this login may have, if that is limited (CONNECTION LIMIT).
    database_limit: int | None = None
    login_limit: int | None = None
    #: Of the server's transactions that have written: the age of the oldest open one, if this login may read its start,
    #: and how many transactions have begun since the oldest of all. None and 0: none is open.
    write_open_s: float | None = None
    transactions_since_write: int = 0
    #: The hosts that are registered; None: the schema is not this release's.
    all_hosts: int | None = None
    #: The login that the connection is made with; None: the schema is not this release's.
    login: str | None = None
    #: It has the rights of the schema's owner, so it may act for every host.
    owner: bool = False
    #: The hosts that are bound to it.
    hosts: tuple[str, ...] = ()


def probe(dsn: str, direct_host: str | None = None) -> DatabaseFacts:
    """Look at a database; `direct_host`: the server itself, where `dsn` leads to a pooler in transaction mode.

    Raises:
        DatabaseUnavailableError: no connection, or it broke off, or the server takes no writes, or the user may not
            read the version.
        ConfigError: the address cannot be parsed.
    """
    try:
        with _connect(dsn) as connection, session.scope(connection, bounds=BOUNDS):
            server = expect(row(connection, QUERIES["server_facts"]))
            applied = row(connection, QUERIES["applied_version"]) if server["has_versions"] else None
            version: str | None = None if applied is None else applied["version"]
            who = row(connection, QUERIES["login_facts"]) if version == schema.versions()[-1] else None
            misread = tuple(session.misread(connection))
            hidden = tuple(
                each["name"] for each in rows(connection, QUERIES["hidden_tables"]) if each["from_this_login"]
            )
            unpinned = tuple(each["text"] for each in rows(connection, QUERIES["unpinned_triggers"]))
        direct = _notifications_arrive(session.direct_address(dsn, direct_host), dsn)
    except psycopg.Error as error:
        raise DatabaseUnavailableError(str(error).strip()) from error
    versions = schema.versions()
    applied_count = versions.index(version) + 1 if version in versions else 0
    newer = version is not None and version > versions[-1]
    return DatabaseFacts(
        version=version,
        pending=() if newer else tuple(versions[applied_count:]),
        newer=newer,
        direct=direct,
        misread=misread,
        hidden=hidden,
        unpinned_triggers=unpinned,
        **{name: value for name, value in server.items() if name != "has_versions"},
        **({} if who is None else {**who, "hosts": tuple(who["hosts"])}),
    )


def _connect(dsn: str) -> psycopg.Connection[Row]:
    name = "kernel-runner check"
    address = session.conninfo(dsn, application_name=name, connect_timeout=_CONNECT_TIMEOUT_S, **WRITES)
    return session.connect(
        address,
        bounds=BOUNDS,
        connection_class=psycopg.Connection[Row],
        row_factory=dict_row,
        prepare_threshold=None,
    )


def _notifications_arrive(direct: str, dsn: str) -> bool:
    """Call from a second session, as every submitter does, and see whether the first one hears it."""
    payload = secrets.token_hex(8)
    with _connect(direct) as connection:
        connection.execute(QUERIES["listen_check"].sql)
        with _connect(dsn) as caller:
            caller.execute(QUERIES["notify_check"].sql, {"payload": payload})
        deadline = time.monotonic() + _NOTIFY_TIMEOUT_S
        while (left_s := deadline - time.monotonic()) > 0:
            # Another check may be calling at the same time; only our own call counts.
            if any(heard.payload == payload for heard in connection.notifies(timeout=left_s, stop_after=1)):
                return True
    return False
