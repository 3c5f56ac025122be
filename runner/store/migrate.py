"""Brings a database to the version this release needs; called by `kernel-runner migrate`, `make up` and the tests.

Owns the one transaction in which nearly everything happens: locks, drift check, tables or migrations, functions and
views, roles. Either all of it is committed or nothing. After it, without it and while others write: indexes of large
tables, and the copies of scores that the ranking reads.

The transaction takes its locks first, waits two seconds for each, and begins anew if it does not get them. So frontends
that go on meanwhile wait for seconds at most. If nothing is to be done, it locks no table and no view.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.rows import dict_row

from runner.base.errors import ConfigError, DatabaseUnavailableError, SchemaDriftError
from runner.store import queries, schema, session
from runner.store.base import expect
from runner.store.connection import READ_ONLY, Row, row, rows
from runner.store.drift import Column, differences
from runner.store.probe import hidden_text
from runner.store.queries import QUERIES

_APPLICATION_NAME = "kernel-runner migrate"
_GIVEN_UP: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)
#: Each transaction sets its own `lock_timeout`.
_BOUNDS: Final = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
#: How often a migration begins that did not get its locks, or was given up for another transaction's sake.
TRIES: Final = 30
#: The longest pause between two tries, in which those who waited behind it go on.
_PAUSE_S: Final = 2.0
#: How often, each second, it is looked whether another migration has built the indexes.
INDEX_TRIES: Final = 120
_SCORES_AT_ONCE: Final = 10_000
_UTF8: Final = "CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'"
_DROP: Final = re.compile(r"^DROP (FUNCTION|VIEW) ", re.MULTILINE)
#: What goes before a migration: the view reads the columns that it drops.
_BEFORE: Final = {"0004_one_slot_per_device": "DROP VIEW runner.status;\n"}


def migrate(dsn: str, *, roles: bool = False) -> Sequence[str]:
    """Make the tables or apply the migrations that are missing, then all functions and views; then build indexes.

    Sequences that are behind their tables, as logical replication leaves them, are put to the last number there.

    Functions and views are left alone where these files were applied last and no one has changed any of them. Indexes
    that are there are left alone too. Whoever migrates, the owner of `runner.job` gets all objects: a function runs
    with its owner's rights.

    It is safe to call twice and from several places at once. `roles` also creates the roles of `schema.roles_sql` and
    grants them their rights, which needs CREATEROLE.

    Returns:
        The names of the versions applied by this call, oldest first.

    Raises:
        SchemaDriftError: schema `leaderboard` is there, but is not what we rely on; nothing was changed.
        DatabaseUnavailableError: no connection, or a lock that another session holds for minutes. If it holds up only
            an index, everything else is done, and queries take longer until another call builds it.
        ConfigError: the database user lacks a right, the database is at a version that this release does not know, or
            the address cannot be parsed, or something of another program is in the way; nothing was changed. Or row
            security hides rows; everything is done.
    """
    address = session.conninfo(dsn, application_name=_APPLICATION_NAME, connect_timeout="10")
    with _translated(), _connect(address) as connection:
        applied = _insistently(connection, roles=roles)
        rows(connection, QUERIES["raise_sequences"])
        _build_indexes(address, connection)
        while _one(connection, QUERIES["keep_scores"], {"limit": _SCORES_AT_ONCE})["more"]:
            pass
        if hidden := [each["name"] for each in rows(connection, QUERIES["hidden_tables"])]:
            raise ConfigError(f"the schema is migrated, but {hidden_text(hidden)}")
    return applied


def _connect(address: str) -> psycopg.Connection[Row]:
    return session.connect(
        address, bounds=_BOUNDS, connection_class=psycopg.Connection[Row], row_factory=dict_row, prepare_threshold=None
    )


def _insistently(connection: psycopg.Connection[Row], *, roles: bool) -> Sequence[str]:
    left = TRIES
    while True:
        left -= 1
        try:
            with session.scope(connection, bounds=_BOUNDS), connection.transaction():
                return _migrate(connection, roles=roles)
        except _GIVEN_UP as error:
            if not left or (isinstance(error, psycopg.errors.UniqueViolation) and not _is_schema_race(error)):
                raise
        time.sleep(random.uniform(0.2, 1.0) * _PAUSE_S)  # noqa: S311 - two that met must not meet again


def _is_schema_race(error: psycopg.Error) -> bool:
    """Whether another migration made the schema at the same moment, in a database that had none."""
    return error.diag.constraint_name == "pg_namespace_nspname_index"


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the project's errors for what an operator can mend."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise DatabaseUnavailableError(
            f"cannot migrate: another session keeps a lock, as a backup does ({error}); nothing was changed. Wait for "
            "it or end it (pg_stat_activity.xact_start), and migrate again"
        ) from error
    except psycopg.OperationalError as error:
        raise DatabaseUnavailableError(f"cannot migrate: {error}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailableError(f"cannot migrate: the server takes no writes ({error}); {READ_ONLY}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"cannot migrate: the database user lacks a right ({str(error).strip()}); nothing was changed. Use "
            "the database's owner, and for --roles a user with CREATEROLE, or have an administrator run what "
            "`kernel-runner migrate --print-roles` prints"
        ) from error
    except psycopg.Error as error:
        parts = (error.diag.message_primary or str(error), error.diag.message_detail)
        reason = ": ".join(part for part in parts if part)
        raise ConfigError(
            f"cannot migrate: {reason}; nothing was changed. Schema runner has something of another program, or that "
            "program's depends on ours: drop or rename it, migrate again, and make it again"
        ) from error


def _migrate(connection: psycopg.Connection[Row], *, roles: bool) -> Sequence[str]:
    """One try, in the caller's transaction."""
    rows(connection, QUERIES["migration_settings"])
    # Rolled back with the rest where the database is refused.
    rows(connection, QUERIES["create_runner_schema"])
    rows(connection, QUERIES["migration_lock"])
    _give_to_owner(connection)
    _refuse_drift(connection)
    version = _version(connection)
    _refuse_unknown_version(version)
    texts = (schema.validations_sql(), *schema.objects(), schema.rights_sql())
    files = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    pending = [name for name in schema.versions() if version is None or name > version]
    if pending or not _is_applied(connection, files):
        rows(connection, QUERIES["lock_views"])
        if pending:
            rows(connection, QUERIES["lock_tables"])
            new = (schema.leaderboard_sql(), *schema.tables())
            _execute(connection, *(new if version is None else _steps(pending)))
            rows(connection, QUERIES["store_version"], {"version": pending[-1]})
        _execute(connection, *texts)
        _give_to_owner(connection)
    elif not roles:
        return ()
    if roles:
        _execute(connection, schema.roles_sql())
    objects = _one(connection, QUERIES["applied_objects"])["objects"]
    rows(connection, QUERIES["store_applied"], {"files": files, "objects": objects})
    return tuple(pending)


def _give_to_owner(connection: psycopg.Connection[Row]) -> None:
    """Give what another login has made of ours, as the superuser who migrated, to the owner of the rest."""
    strays = rows(connection, QUERIES["strays"], {"names": list(schema.names())})
    _execute(connection, *(stray["statement"] for stray in strays))


def _steps(pending: Sequence[str]) -> Iterator[str]:
    """The SQL of migrations that are applied in one call.

    Each drops functions and views as they were before it. Only those of the database's own release are there, so a drop
    of another has nothing to do.
    """
    texts = schema.migrations()
    for name in pending:
        yield _DROP.sub(r"\g<0>IF EXISTS ", _BEFORE.get(name, "") + texts[name])


def _build_indexes(address: str, connection: psycopg.Connection[Row]) -> None:
    """Build the indexes that are missing, each in its own transactions; a broken one is removed first.

    Raises:
        DatabaseUnavailableError: another session holds one up.
    """
    if not _missing_indexes(connection):
        return
    if not session.is_pooled(connection):
        rows(connection, QUERIES["index_settings"])
    with _connect(address) as guard:
        guard.autocommit = False
        for _ in range(INDEX_TRIES):
            try:
                rows(guard, QUERIES["try_index_lock"])
                break
            except psycopg.errors.LockNotAvailable:
                guard.rollback()
            time.sleep(1.0)
            if not _missing_indexes(connection):
                return
        else:
            raise DatabaseUnavailableError("another session keeps indexes from being built; end it and migrate again")
        for name, statements in _missing_indexes(connection).items():
            _build(connection, name, statements)


def _build(connection: psycopg.Connection[Row], name: str, statements: Sequence[str]) -> None:
    what = f"the schema is migrated, but index {name} is not built"
    try:
        _execute(connection, *statements)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailableError(
            f"{what}: {error}; end the transactions that have been open for long (pg_stat_activity.xact_start), and "
            "migrate again"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(f"{what}: {str(error).strip()}; migrate again as the owner of the table") from error


def _missing_indexes(connection: psycopg.Connection[Row]) -> Mapping[str, Sequence[str]]:
    """What builds each index that is missing or broken."""
    built = {index["name"]: index for index in rows(connection, QUERIES["built_indexes"])}
    missing: dict[str, Sequence[str]] = {}
    for name, statement in schema.indexes().items():
        if name not in built:
            missing[name] = (statement,)
        elif not built[name]["valid"]:
            missing[name] = (f"DROP INDEX {built[name]['full_name']}", statement)
    return missing


def _is_applied(connection: psycopg.Connection[Row], files: str) -> bool:
    """Whether these files were applied last, and no function or view has been changed since."""
    objects = _one(connection, QUERIES["applied_objects"])["objects"]
    return [stored["stored"] for stored in rows(connection, QUERIES["applied_files"])] == [f"{files} {objects}"]


def _version(connection: psycopg.Connection[Row]) -> str | None:
    """The newest version applied; None in a database without our tables."""
    if not _one(connection, QUERIES["has_version"])["has_version"]:
        return None
    version: str = _one(connection, QUERIES["applied_version"])["version"]
    return version


def _refuse_drift(connection: psycopg.Connection[Row]) -> None:
    database = _one(connection, QUERIES["text_settings"])
    columns = [Column(**column) for column in rows(connection, QUERIES["leaderboard_columns"])]
    keys = [(key["table"], tuple(key["columns"])) for key in rows(connection, QUERIES["leaderboard_keys"])]
    encoding = database["encoding"]
    faults = [] if encoding == "UTF8" else [f"the database's encoding is {encoding}, expected UTF8 ({_UTF8})"]
    if not database["folds"]:
        faults.append(f"the database's locale lowers I to another letter than i, as Turkish does ({_UTF8} LOCALE 'C')")
    if columns:
        faults += differences(columns, keys)
    if faults:
        raise SchemaDriftError(faults)


def _refuse_unknown_version(version: str | None) -> None:
    if version is not None and version not in schema.versions():
        raise ConfigError(
            f"cannot migrate: the database is at version {version!r}, which this release does not know; nothing was "
            "changed. Update kernel-runner on this host"
        )


def _one(
    connection: psycopg.Connection[Row], query: queries.Query, parameters: Mapping[str, object] | None = None
) -> Row:
    """The row of a statement that always returns one."""
    return expect(row(connection, query, parameters))


def _execute(connection: psycopg.Connection[Row], *texts: str) -> None:
    """Run texts of several statements; without parameters, so `%` means `%`."""
    for text in texts:
        connection.execute(text.encode())
