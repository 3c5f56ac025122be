"""An export from a real replica that streams from its primary."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from runner.extras.data.verify import verify
from runner.store import migrate
from tests.chaos.server import Server
from tests.integration.extras.data.conftest import Filler, exported, no_progress
from tests.integration.extras.data.test_export import content
from tests.support.waiting import wait_until


def replayed(primary: str, replica: str) -> None:
    """Wait until the replica shows all that the primary has committed."""
    with psycopg.connect(primary) as db:
        written = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    with psycopg.connect(replica, autocommit=True) as db:
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: bool((db.execute(query, written).fetchone() or (False,))[0]), "the replica is as far")


def test_a_replica_exports_what_its_primary_does(tmp_path: Path) -> None:
    """Into a new folder, and over an older export of the primary; it notes that it is one."""
    with Server() as server:
        server.start()
        primary = server.url("postgres")
        migrate(primary)
        with psycopg.Connection[dict[str, object]].connect(primary, autocommit=True, row_factory=dict_row) as db:
            filler = Filler(db)
            board = filler.board("gemv")
            for user in ("ada", "bob"):
                filler.ranked(board, filler.user(user), f"# {user}".encode(), "0.001")
            exported(primary, tmp_path / "primary")
            with Server(standby_of=server) as standby:
                standby.start()
                standby.set("hot_standby_feedback", "on")
                standby.set("max_standby_streaming_delay", "-1")
                replica = standby.url("postgres")
                replayed(primary, replica)
                assert exported(replica, tmp_path / "replica")["replica"]
                assert verify(tmp_path / "replica", no_progress) == []
                filler.ranked(board, "ada", b"# third", "0.0005")
                replayed(primary, replica)
                exported(replica, tmp_path / "primary")
                exported(replica, tmp_path / "again")
                assert content(tmp_path / "again") == content(tmp_path / "primary") != content(tmp_path / "replica")
