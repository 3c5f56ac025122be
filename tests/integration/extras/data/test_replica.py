"""An export from a real replica that streams from its primary; one that a replica cancels says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.errors import DatabaseUnavailableError
from runner.extras.data.choice import Options
from runner.extras.data.export import export
from runner.extras.data.snapshot import People, Scope, Snapshot
from runner.extras.data.verify import verify
from runner.store import migrate
from tests.chaos.server import Server
from tests.integration.extras.data.conftest import Filler, exported, no_progress
from tests.integration.extras.data.test_export import content
from tests.support.waiting import wait_until


@contextmanager
def streaming_replica(primary: Server, **settings: str) -> Iterator[str]:
    """A replica with these settings; the URL of the same database there."""
    with Server(standby_of=primary) as replica:
        replica.start()
        for name, value in settings.items():
            replica.set(name, value)
        yield replica.url("postgres")


@contextmanager
def filled(url: str) -> Iterator[Filler]:
    """Writes submissions."""
    with psycopg.Connection[dict[str, object]].connect(url, autocommit=True, row_factory=dict_row) as db:
        yield Filler(db)


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[Server]:
    """A server of its own, with two users and a submission each."""
    with Server() as server:
        server.start()
        migrate(server.url("postgres"))
        with filled(server.url("postgres")) as filler:
            board = filler.board("gemv")
            for user in ("ada", "bob"):
                filler.user(user)
                filler.ranked(board, user, f"# {user}".encode(), "0.001")
        yield server


@pytest.fixture
def primary(server: Server) -> str:
    """The URL of its database."""
    return server.url("postgres")


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


def test_a_replica_exports_what_its_primary_does(server: Server, primary: str, tmp_path: Path) -> None:
    """Into a new folder, and over an older export of the primary; it notes that it is one."""
    exported(primary, tmp_path / "primary")
    with streaming_replica(server, hot_standby_feedback="on", max_standby_streaming_delay="-1") as replica:
        replayed(primary, replica)
        done = exported(replica, tmp_path / "replica")
        assert done["replica"]
        assert verify(tmp_path / "replica", no_progress) == []
        with filled(primary) as filler:
            filler.ranked(1, "ada", b"# third", "0.0005")
        replayed(primary, replica)
        exported(replica, tmp_path / "primary")
        exported(replica, tmp_path / "again")
        assert content(tmp_path / "again") == content(tmp_path / "primary") != content(tmp_path / "replica")


def test_an_export_that_the_replica_cancels_says_what_to_do(
    server: Server, primary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary removes rows that the export still sees, and replay does not wait: the old export stays."""
    settings = {"hot_standby_feedback": "off", "max_standby_streaming_delay": "0", "max_standby_archive_delay": "0"}
    exported(primary, tmp_path / "out")
    old = content(tmp_path / "out")
    with streaming_replica(server, **settings) as replica:
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
