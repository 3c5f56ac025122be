"""Claims and a crash of the server, with a disk that keeps what it was given and one that does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from runner.base.errors import StaleAttemptError
from runner.base.model import Verdict
from runner.store import Store, migrate
from tests.chaos.server import Server
from tests.integration.store.conftest import Bench, result, run_record

_ACCEPTED = result(Verdict.ACCEPTED, run_record())


@pytest.fixture
def server() -> Iterator[Server]:
    """One with an empty queue."""
    with Server() as made:
        made.start()
        made.set("autovacuum", "off")
        made.set("checkpoint_timeout", "1h")
        with psycopg.connect(made.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE queue")
        migrate(made.url("queue"))
        yield made


@pytest.fixture
def bench(server: Server) -> Iterator[Bench]:
    """With a job in the queue. From now on only what waits for the disk gets there, and what was done before that."""
    store = Store(server.url("queue"), application_name="kernel-runner test")
    made = Bench(store=store, url=server.url("queue"))
    made.board()
    made.submit()
    server.set("wal_writer_delay", "10s")
    # Until the WAL writer has read it, written what there is, and gone to sleep.
    time.sleep(1.0)
    yield made
    store.close()


def test_a_claim_that_is_taken_back_is_made_again_and_its_first_run_is_stale(server: Server, bench: Bench) -> None:
    """As after a fail-over: the job waits, and the run that the database knows nothing of leaves no result."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE queue SET synchronous_commit = off")
    bench.store.close()
    lost = bench.claim()
    ((on_disk,),) = _look(bench, "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
    assert not on_disk
    _crash(server, bench)
    assert _look(bench, "SELECT state, attempt FROM runner.job") == [("queued", 0)]
    (lease,) = bench.store.heartbeat(host="host-a", lease_s=60, held=[lost.key])
    assert not lease.ours
    with pytest.raises(StaleAttemptError, match="queued at attempt 0"):
        bench.store.complete(lost, _ACCEPTED)
    again = bench.claim()
    assert again.key == lost.key
    with pytest.raises(StaleAttemptError, match="running at attempt 1"):
        bench.store.complete(lost, _ACCEPTED)
    assert _look(bench, "SELECT count(*) FROM leaderboard.runs") == [(0,)]
    bench.store.complete(again, _ACCEPTED)
    assert _look(bench, "SELECT state, attempt FROM runner.job") == [("done", 1)]


def test_a_claim_waits_for_the_disk(server: Server, bench: Bench) -> None:
    """The run that was under way when the server crashed ends with its result."""
    job = bench.claim()
    _crash(server, bench)
    bench.store.complete(job, _ACCEPTED)
    assert _look(bench, "SELECT state, attempt FROM runner.job") == [("done", 1)]


def _crash(server: Server, bench: Bench) -> None:
    bench.store.close()
    server.crash()
    server.start()


def _look(bench: Bench, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(bench.url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()
