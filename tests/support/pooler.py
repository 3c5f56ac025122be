"""A real PgBouncer in transaction mode, before a server's Unix socket; started, killed and started again by a test."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

#: The program, /usr/sbin/pgbouncer or the one in PATH; None without one.
PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
#: `auth_type = any` logs every client in as the user that the database entry forces.
_CONFIG: Final = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
server_reset_query_always = 0
# A server that could not be reached is tried again after so many seconds; usually 15.
server_login_retry = 1
logfile = {folder}/pgbouncer.log
"""


class Pooler:
    """One PgBouncer in a folder of its own. Use as a context manager."""

    def __init__(self, *, host: str, port: int, user: str, pool_size: int) -> None:
        """`host`: the folder of the server's Unix socket."""
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-runner-test-"))
        self.port = free_port()
        config = self._folder / "pgbouncer.ini"
        config.write_text(
            _CONFIG.format(host=host, port=port, user=user, listen=self.port, folder=self._folder, pool_size=pool_size),
            encoding="ascii",
        )
        self._command = [str(PGBOUNCER), str(config)]
        if os.geteuid() == 0:
            # It refuses to run as root, and only the server's user may go to the server's socket.
            owner = pwd.getpwuid(Path(host).stat().st_uid)
            for path in (self._folder, config):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            self._command[1:1] = ["-u", owner.pw_name]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> Path:
        """Where it listens, beside its port."""
        return self._folder / f".s.PGSQL.{self.port}"

    def url(self, database_url: str) -> str:
        """A server's address, through this pooler."""
        return make_conninfo(database_url, host="127.0.0.1", port=str(self.port))

    def start(self) -> None:
        """Start it; does not wait until it serves."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, database_url: str) -> None:
        """Wait until a database can be reached through it.

        Raises:
            AssertionError: it ended, or cannot be reached; what it logged is in the message.
        """
        until_s = time.monotonic() + PATIENCE_S
        served = False
        while not served:
            try:
                psycopg.connect(self.url(database_url), connect_timeout=5).close()
                served = True
            except psycopg.OperationalError as error:
                log = self._folder / "pgbouncer.log"
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > until_s:
                    raise AssertionError(log.read_text() if log.exists() else str(error)) from error
                time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, with all its connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=PATIENCE_S)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
