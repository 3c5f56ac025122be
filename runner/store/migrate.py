"""Brings a database to the version this release needs; called by `kernel-runner migrate`, `make up` and the tests.

Owns the one transaction in which nearly everything happens: locks, drift check, versions of the tables, functions and
views, roles. Either all of it is committed or nothing. After it, without it and while others write: indexes of large
tables, and the copies of scores that the ranking reads.

The transaction takes its locks first, waits two seconds for each, and begins anew if it does not get them. So frontends
that go on meanwhile wait for seconds at most. If nothing is to be done, it locks no table and no view.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg

from runner.errors import ConfigError, DatabaseUnavailableError, SchemaDriftError
from runner.store import migrations, queries, schema, session
from runner.store.drift import Column, differences
from runner.store.queries import Query

if TYPE_CHECKING:
    # Each function that needs it or alembic imports it: no other command, and no daemon, pays for the import.
    import sqlalchemy

#: Alembic keeps the running migration in module globals; the lock in the database serialises per database only.
_ALEMBIC_LOCK = threading.Lock()
_GIVEN_UP: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
_APPLICATION_NAME = "kernel-runner migrate"
#: Each transaction sets its own `lock_timeout`.
_BOUNDS: Final = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
#: How often a migration begins that did not get its locks, or was given up for another transaction's sake.
TRIES: Final = 30
#: The longest pause between two tries, in which those who waited behind it go on.
_PAUSE_S: Final = 2.0
#: How often, each second, it is looked whether another migration has built the indexes.
INDEX_TRIES: Final = 120
_SCORES_AT_ONCE: Final = 10_000


def migrate(dsn: str, *, roles: bool = False) -> Sequence[str]:
    """Apply the versions that are missing, then all functions and views, in one transaction; then build indexes.

    Functions and views are left alone where these files were applied last and no one has changed any of them. Indexes
    that are there are left alone too.

    It is safe to call twice and from several places at once. `roles` also creates the roles of `schema.roles_sql` and
    grants them their rights, which needs CREATEROLE.

    Returns:
        The names of the versions applied by this call, oldest first.

    Raises:
        SchemaDriftError: schema `leaderboard` is there, but is not what we rely on; nothing was changed.
        DatabaseUnavailableError: no connection, or a lock that another session holds for minutes. If it holds up only
            an index, everything else is done, and queries take longer until another call builds it.
        ConfigError: the database user lacks a right, the database is at a version that this release does not know, or
            the address cannot be parsed; nothing was changed.
    """
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    address = session.conninfo(dsn, application_name=_APPLICATION_NAME, connect_timeout="10")
    applied: list[str] = []

    def remember(*, step: Any, **_: Any) -> None:  # noqa: ANN401 alembic's callback protocol
        applied.extend(step.up_revision_ids)

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=lambda: _connect(address),
        poolclass=NullPool,
    )
    try:
        with _translated():
            for left in reversed(range(TRIES)):
                applied.clear()
                try:
                    with engine.begin() as connection:
                        _migrate(connection, remember, roles=roles)
                    break
                except (sqlalchemy.exc.OperationalError, sqlalchemy.exc.IntegrityError) as error:
                    if not left or not (isinstance(error.orig, _GIVEN_UP) or _is_schema_race(error.orig)):
                        raise
                    time.sleep(random.uniform(0.2, 1.0) * _PAUSE_S)  # noqa: S311 - two that met must not meet again
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                _build_indexes(engine, connection)
                while _run(connection, queries.KEEP_SCORES, {"limit": _SCORES_AT_ONCE})[0].more:
                    pass
    finally:
        engine.dispose()
    return tuple(applied)


def _connect(address: str) -> psycopg.Connection[Any]:
    """A connection as SQLAlchemy expects it: not in autocommit mode."""
    connection = session.connect(address, bounds=_BOUNDS, connection_class=psycopg.Connection[Any])
    connection.autocommit = False
    return connection


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the project's errors for what an operator can mend."""
    import sqlalchemy

    try:
        yield
    except sqlalchemy.exc.OperationalError as error:
        raise DatabaseUnavailableError(f"cannot migrate: {error.orig}") from error
    except sqlalchemy.exc.InternalError as error:
        if not isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
            raise
        raise DatabaseUnavailableError(
            f"cannot migrate: the server takes no writes ({error.orig}); name the primary in the database's address"
        ) from error
    except sqlalchemy.exc.ProgrammingError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        raise ConfigError(
            f"cannot migrate: the database user lacks a right ({str(error.orig).strip()}); nothing was changed. Use "
            "the database's owner, and for --roles a user with CREATEROLE, or have an administrator run what "
            "`kernel-runner migrate --print-roles` prints"
        ) from error


def _migrate(connection: sqlalchemy.Connection, on_version_apply: object, *, roles: bool) -> None:
    """One try, in the caller's transaction."""
    _run(connection, queries.MIGRATION_SETTINGS)
    # Rolled back with the rest where the database is refused.
    _run(connection, queries.CREATE_RUNNER_SCHEMA)
    _run(connection, queries.MIGRATION_LOCK)
    _refuse_drift(connection)
    _refuse_unknown_version(connection)
    pending = _version(connection) != migrations.versions()[-1]
    texts = (*schema.objects(), schema.rights_sql())
    files = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    if pending or not _is_applied(connection, files):
        _run(connection, queries.LOCK_VIEWS)
        if pending:
            _run(connection, queries.LOCK_TABLES)
            _upgrade(connection, on_version_apply)
        for text in texts:
            _execute(connection, text)
    elif not roles:
        return
    if roles:
        _execute(connection, schema.roles_sql())
    (objects,) = _run(connection, queries.APPLIED_OBJECTS)
    _run(connection, queries.FORGET_APPLIED)
    _run(connection, queries.STORE_APPLIED, {"files": files, "objects": objects.objects})


def _is_schema_race(error: BaseException | None) -> bool:
    """Whether another migration made the schema at the same moment, in a database that had none."""
    return (
        isinstance(error, psycopg.errors.UniqueViolation) and error.diag.constraint_name == "pg_namespace_nspname_index"
    )


def _build_indexes(engine: sqlalchemy.Engine, connection: sqlalchemy.Connection) -> None:
    """Build the indexes that are missing, each in its own transactions; a broken one is removed first.

    Then remove those that they replace.

    Raises:
        DatabaseUnavailableError: another session holds one up.
    """
    import sqlalchemy

    if not _index_changes(connection):
        return
    _run(connection, queries.INDEX_SETTINGS)
    with engine.connect() as guard:
        for _ in range(INDEX_TRIES):
            try:
                _run(guard, queries.TRY_INDEX_LOCK)
                break
            except sqlalchemy.exc.OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                    raise
                guard.rollback()
            time.sleep(1.0)
            if not _index_changes(connection):
                return
        else:
            raise DatabaseUnavailableError("another session keeps indexes from being built; end it and migrate again")
        _change_indexes(connection)


def _change_indexes(connection: sqlalchemy.Connection) -> None:
    import sqlalchemy

    for name, statements in _index_changes(connection).items():
        what = f"index {name} is not {'built' if name in schema.indexes() else 'removed'}"
        try:
            for statement in statements:
                _execute(connection, statement)
        except sqlalchemy.exc.OperationalError as error:
            raise DatabaseUnavailableError(
                f"the schema is migrated, but {what}: {error.orig}; end the transactions that have been open for long "
                "(pg_stat_activity.xact_start), and migrate again"
            ) from error
        except sqlalchemy.exc.ProgrammingError as error:
            if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise
            raise ConfigError(
                f"the schema is migrated, but {what}: {str(error.orig).strip()}; migrate again as the owner of the "
                "table"
            ) from error


def _index_changes(connection: sqlalchemy.Connection) -> Mapping[str, Sequence[str]]:
    """What builds each index that is missing or broken, then what removes each that has been replaced."""
    built = {row.name: row for row in _run(connection, queries.BUILT_INDEXES)}
    changes: dict[str, Sequence[str]] = {}
    for name, statement in schema.indexes().items():
        if name not in built:
            changes[name] = (statement,)
        elif not built[name].valid:
            changes[name] = (f"DROP INDEX {built[name].full_name}", statement)
    for name in schema.REPLACED_INDEXES:
        if name in built:
            changes[name] = (f"DROP INDEX CONCURRENTLY {built[name].full_name}",)
    return changes


def _is_applied(connection: sqlalchemy.Connection, files: str) -> bool:
    """Whether these files were applied last, and no function or view has been changed since."""
    (objects,) = _run(connection, queries.APPLIED_OBJECTS)
    return [row.stored for row in _run(connection, queries.APPLIED_FILES)] == [f"{files} {objects.objects}"]


def _version(connection: sqlalchemy.Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection, opts=dict(migrations.VERSION_TABLE)).get_current_revision()


def _upgrade(connection: sqlalchemy.Connection, on_version_apply: object) -> None:
    from alembic import command

    config = migrations.config()
    config.attributes["connection"] = connection
    config.attributes["on_version_apply"] = on_version_apply
    with _ALEMBIC_LOCK:
        command.upgrade(config, "head")


def _refuse_drift(connection: sqlalchemy.Connection) -> None:
    (encoding,) = _run(connection, queries.SERVER_ENCODING)
    columns = [
        Column(table=row.table_name, name=row.column_name, data_type=row.data_type, required=row.required)
        for row in _run(connection, queries.LEADERBOARD_COLUMNS)
    ]
    keys = [(row.table_name, tuple(row.columns)) for row in _run(connection, queries.LEADERBOARD_KEYS)]
    found = [] if encoding.encoding == "UTF8" else [f"the database's encoding is {encoding.encoding}, expected UTF8"]
    if columns:
        found += differences(columns, keys)
    if found:
        raise SchemaDriftError(found)


def _refuse_unknown_version(connection: sqlalchemy.Connection) -> None:
    found = _version(connection)
    known = migrations.versions()
    if found is None or found in known:
        return
    if found > known[-1]:
        raise ConfigError(
            f"cannot migrate: the database is at version {found!r}, which this release does not know; nothing was "
            "changed. Update kernel-runner on this host"
        )
    raise ConfigError(
        f"cannot migrate: the database is at version {found!r}, and this release starts at {known[0]!r}; nothing was "
        f"changed. Migrate it to {known[0]!r} with an older kernel-runner first. Or drop schema runner, which loses "
        "the queue and its history but no table of KernelBot, and migrate again"
    )


def _run(
    connection: sqlalchemy.Connection, query: Query, values: Mapping[str, object] | None = None
) -> Sequence[sqlalchemy.Row[Any]]:
    text = query.sql.decode()
    result = _execute(connection, text) if values is None else connection.exec_driver_sql(text, dict(values))
    return result.all() if result.returns_rows else ()


def _execute(connection: sqlalchemy.Connection, text: str) -> sqlalchemy.CursorResult[Any]:
    # `no_parameters` hands the text to the driver as it is: several statements, and `%` means `%`.
    return connection.execution_options(no_parameters=True).exec_driver_sql(text)
