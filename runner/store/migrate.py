"""Brings a database to the version this release needs; called by `kernel-runner migrate`, `make up` and the tests.

Owns the one transaction in which everything happens: lock, drift check, revisions, roles. Either all of it is
committed or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from sqlalchemy.pool import NullPool

from runner.errors import ConfigError, DatabaseUnavailableError, SchemaDriftError
from runner.store import queries
from runner.store.connection import checked
from runner.store.drift import Column, differences
from runner.store.queries import Query

#: Alembic keeps the running migration in module globals; the advisory lock serialises per database only.
_ALEMBIC_LOCK = threading.Lock()
_APPLICATION_NAME = "kernel-runner migrate"


def migrate(dsn: str, *, roles: bool = False) -> Sequence[str]:
    """Apply what is missing, in one transaction; safe to call twice and from several places at once.

    `roles` also creates the roles of `roles_sql` and grants them their rights, which needs CREATEROLE.

    Returns:
        The names of the versions applied by this call, oldest first.

    Raises:
        SchemaDriftError: schema `leaderboard` is there, but is not what we rely on; nothing was changed.
        DatabaseUnavailableError: no connection, or a lock that somebody else holds for minutes.
        ConfigError: the database user lacks a right, or the address cannot be parsed; nothing was changed.
    """
    checked(dsn)
    applied: list[str] = []

    def remember(*, step: Any, **_: Any) -> None:  # noqa: ANN401 alembic's callback protocol
        applied.extend(step.up_revision_ids)

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(dsn, application_name=_APPLICATION_NAME, connect_timeout=10),
        poolclass=NullPool,
    )
    try:
        with engine.begin() as connection:
            _run(connection, queries.MIGRATION_SETTINGS)
            _run(connection, queries.MIGRATION_LOCK)
            _refuse_drift(connection)
            _run(connection, queries.CREATE_RUNNER_SCHEMA)
            _upgrade(connection, remember)
            if roles:
                connection.execution_options(no_parameters=True).exec_driver_sql(roles_sql())
    except sqlalchemy.exc.OperationalError as error:
        raise DatabaseUnavailableError(f"cannot migrate: {error.orig}") from error
    except sqlalchemy.exc.ProgrammingError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        raise ConfigError(
            f"cannot migrate: the database user lacks a right ({str(error.orig).strip()}); nothing was changed. Use "
            "the database's owner, and for --roles a user with CREATEROLE, or have an administrator run what "
            "`kernel-runner migrate --print-roles` prints"
        ) from error
    finally:
        engine.dispose()
    return tuple(applied)


def roles_sql() -> str:
    """SQL that makes the roles `runner_daemon`, `_frontend`, `_operator` and `_readonly`, and grants them their rights.

    For databases where `migrate` may not create roles: an administrator runs it by hand, after `migrate`.
    """
    return resources.files("runner.store.migrations").joinpath("sql", "roles.sql").read_text(encoding="utf-8")


def _upgrade(connection: sqlalchemy.Connection, on_version_apply: object) -> None:
    config = Config()
    # A percent sign in the path would be read as an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
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


def _run(connection: sqlalchemy.Connection, query: Query) -> Sequence[sqlalchemy.Row[Any]]:
    result = connection.execution_options(no_parameters=True).exec_driver_sql(query.sql.decode())
    return result.all() if result.returns_rows else ()
