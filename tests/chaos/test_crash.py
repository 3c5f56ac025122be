"""A claim does not wait for the disk: what becomes of one that a crash of the server takes back."""

from __future__ import annotations

import psycopg
import pytest

from runner.errors import StaleAttemptError
from runner.model import Verdict
from runner.store import Store, migrate
from tests.chaos.server import Server
from tests.integration.store.conftest import Bench, result, run_record

_ACCEPTED = result(Verdict.ACCEPTED, run_record())


def test_a_claim_that_a_crash_takes_back_is_made_again_and_its_first_run_is_stale() -> None:
    """The job waits again. The run that nobody knows of is told so, before and after the job is claimed anew."""
    with Server() as server:
        server.start()
        # Nothing but a commit that waits for it, and a full buffer, brings a claim to the disk.
        server.set("wal_writer_delay", "10s")
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE queue")
        migrate(server.url("queue"))
        bench = Bench(store=Store(server.url("queue"), application_name="kernel-runner test"), url=server.url("queue"))
        bench.board()
        bench.submit()

        lost = bench.claim()
        bench.store.close()
        server.crash()
        server.start()

        ((state, attempt),) = _look(server, "SELECT state, attempt FROM runner.job")
        assert (state, attempt) == ("queued", 0)
        (lease,) = bench.store.heartbeat(host="host-a", lease_s=60, held=[lost.key])
        assert not lease.ours
        with pytest.raises(StaleAttemptError, match="queued at attempt 0"):
            bench.store.complete(lost, _ACCEPTED)
        again = bench.claim()
        assert again.key == lost.key
        with pytest.raises(StaleAttemptError, match="running at attempt 1"):
            bench.store.complete(lost, _ACCEPTED)
        assert _look(server, "SELECT count(*) FROM leaderboard.runs") == [(0,)]

        bench.store.complete(again, _ACCEPTED)
        bench.store.close()
        server.crash()
        server.start()
        assert _look(server, "SELECT state, attempt FROM runner.job") == [("done", 1)]
        assert _look(server, "SELECT count(*) FROM leaderboard.runs") == [(1,)]


def _look(server: Server, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url("queue"), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()
