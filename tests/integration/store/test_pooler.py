"""Daemons, frontends and command line through a real PgBouncer in transaction mode.

The tests start /usr/sbin/pgbouncer, or the one in PATH. Without one they are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from runner.base.errors import ConfigError
from runner.base.model import Verdict
from runner.extras.boards.store import BoardStore
from runner.extras.data.snapshot import snapshot
from runner.extras.store import AsyncStore
from runner.store import Stop, direct_address, migrate
from runner.store.probe import probe
from tests.integration.store.conftest import CODE, Bench, result, run_record
from tests.support.pooler import PGBOUNCER, Pooler
from tests.support.waiting import PATIENCE_S

needs_pgbouncer = pytest.mark.skipif(
    PGBOUNCER is None, reason="a pooler is tested with PgBouncer: apt-get install pgbouncer (.ci/setup does)"
)


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """The test's database through a pooler that is its own; two server connections, so clients meet each other's."""
    given = conninfo_to_dict(database_url)
    port = int(given.get("port") or 5432)
    with Pooler(host=str(given["host"]), port=port, user=str(given["user"]), pool_size=2) as pooler:
        pooler.wait(database_url)
        yield pooler.url(database_url)


def direct_host(database_url: str) -> str:
    """The server of the tests, as the configuration names it."""
    given = conninfo_to_dict(database_url)
    return f"{given['host']}:{given.get('port') or 5432}"


@needs_pgbouncer
@pytest.mark.parametrize("named", [True, False])
def test_every_statement_goes_through_a_pooler(pooled_url: str, database_url: str, *, named: bool) -> None:
    """A frontend and two daemons share two sessions; a statement is sent often enough to be prepared elsewhere.

    `named`: whether the configuration says so (`direct_host`).
    """
    direct = direct_host(database_url) if named else None
    stores = [BoardStore(pooled_url, application_name="test", direct_host=direct) for _ in range(3)]
    benches = [Bench(store=store, url=pooled_url) for store in stores]
    try:
        benches[0].board()
        for bench, name in zip(benches[1:], ("host-a", "host-b"), strict=True):
            bench.register(name)
        for number in range(20):
            submission = benches[0].submit(user_id=f"u{number}", code=CODE + str(number).encode())
            bench, host = (benches[1], "host-a") if number % 2 else (benches[2], "host-b")
            job = bench.claim(host=host, instance=host)
            assert bench.store.heartbeat(host=host, lease_s=60, held=[job.key], instance=host)[0].ours
            assert bench.store.complete(job, result(Verdict.ACCEPTED, run_record())).submission_done
            assert benches[0].store.submission(submission).status.done
        with psycopg.connect(database_url, autocommit=True) as connection:
            count = (
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test' AND datname = current_database()"
            )
            assert connection.execute(count).fetchone() in {(1,), (2,)}
    finally:
        for store in stores:
            store.close()


@needs_pgbouncer
def test_nothing_of_a_session_stays_behind_in_the_pool(pooled_url: str, database_url: str) -> None:
    """No setting and no prepared statement: other programs use the same sessions. No address says what it leads to."""

    async def guest() -> None:
        guests = AsyncStore(pooled_url, queries={}, connections=2, name="test")
        await guests.open()
        try:
            for _ in range(10):
                assert await guests.all("readiness")
            async with guests.listening():
                pass
        finally:
            await guests.close()

    store = BoardStore(pooled_url, application_name="test")
    try:
        for _ in range(10):
            store.ping()
            store.queue(limit=5)
        migrate(pooled_url)
        with snapshot(pooled_url) as read:
            assert read.boards() == []
        asyncio.run(guest())
        changed = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
        with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other, other.transaction():
            own = {"client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings"}  # the pooler's
            assert [line for line in other.execute(changed) if line[0] not in own] == []
            assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    finally:
        store.close()


@needs_pgbouncer
def test_notifications_come_over_the_direct_connection(pooled_url: str, database_url: str) -> None:
    """A submission through the pooler wakes a daemon that listens beside it."""
    daemon = BoardStore(pooled_url, application_name="test", direct_host=direct_host(database_url))
    frontend = BoardStore(pooled_url, application_name="test", direct_host=direct_host(database_url))
    stop = Stop()
    try:
        wakeup = daemon.listen(stop=stop, timeout_s=PATIENCE_S)
        assert wakeup is not None
        assert wakeup.all_hosts
        bench = Bench(store=frontend, url=pooled_url)
        bench.board()
        submitted = threading.Timer(0.2, bench.submit)
        submitted.start()
        heard = daemon.listen(stop=stop, timeout_s=PATIENCE_S)
        submitted.join()
        assert heard is not None
        assert heard.gpu_types == {"CPU"}
    finally:
        daemon.close()
        frontend.close()


@needs_pgbouncer
def test_check_tells_what_a_pooler_lacks(pooled_url: str, database_url: str) -> None:
    """Without `direct_host` notifications do not arrive; with it they do, and each transaction has our settings."""
    assert not probe(pooled_url).direct
    facts = probe(pooled_url, direct_host(database_url))
    assert facts.direct
    assert facts.misread == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("db.example", ("db.example", "5432")),
        ("db.example:6543", ("db.example", "6543")),
        ("/run/postgresql:5433", ("/run/postgresql", "5433")),
        ("[::1]:5433", ("::1", "5433")),
        ("2001:db8::5", ("2001:db8::5", "5432")),
        ("db1.example,db2.example", ("db1.example,db2.example", "5432")),
    ],
)
def test_the_direct_address_is_the_poolers_with_another_host(given: str, expected: tuple[str, str]) -> None:
    """User, password, database and encryption stay."""
    found = conninfo_to_dict(direct_address("postgresql://u:p@10.0.0.1:6432/d?sslmode=require", given))
    assert (found["host"], found["port"]) == expected
    assert (found["user"], found["password"], found["dbname"], found["sslmode"]) == ("u", "p", "d", "require")
    assert direct_address("host=a", None) == "host=a"
    with pytest.raises(ConfigError):
        direct_address("no address", given)
