"""Daemons, frontends and command line through a real PgBouncer in transaction mode.

The tests start /usr/sbin/pgbouncer, or the one in PATH. Without one they are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from runner.base.errors import ConfigError
from runner.extras.boards.store import BoardStore
from runner.extras.data.snapshot import snapshot
from runner.extras.store import AsyncStore
from runner.store import Stop, Wakeup, direct_address, migrate
from runner.store.probe import probe
from tests.integration.store.conftest import CODE, Bench
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
    with ExitStack() as opened:

        def connect() -> Bench:
            store = BoardStore(pooled_url, application_name="test", direct_host=direct)
            return Bench(store=opened.enter_context(closing(store)), url=pooled_url)

        frontend, hosts = connect(), {"host-a": connect(), "host-b": connect()}
        frontend.board()
        for host, bench in hosts.items():
            bench.register(host)
        for number in range(20):
            submission = frontend.submit(user_id=f"u{number}", code=CODE + str(number).encode())
            host = ("host-a", "host-b")[number % 2]
            job = hosts[host].claim(host=host, instance=host)
            assert hosts[host].store.heartbeat(host=host, lease_s=60, held=[job.key], instance=host)[0].ours
            assert hosts[host].accept(job).submission_done
            assert frontend.store.submission(submission).status.done
        with psycopg.connect(database_url, autocommit=True) as connection:
            ours = "FROM pg_stat_activity WHERE application_name = 'test' AND datname = current_database()"
            assert connection.execute(f"SELECT count(*) {ours}".encode()).fetchone() in {(1,), (2,)}


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

    with closing(BoardStore(pooled_url, application_name="test")) as store:
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


@needs_pgbouncer
def test_notifications_come_over_the_direct_connection(pooled_url: str, database_url: str) -> None:
    """A submission through the pooler wakes a daemon that listens beside it; `check` tells what a pooler lacks.

    Without `direct_host` notifications do not arrive; with it they do, and each transaction has our settings.
    """
    direct = direct_host(database_url)
    assert not probe(pooled_url).direct
    facts = probe(pooled_url, direct)
    assert (facts.direct, facts.misread) == (True, ())
    daemon, frontend = (BoardStore(pooled_url, application_name="test", direct_host=direct) for _ in range(2))
    with closing(daemon), closing(frontend):
        assert daemon.listen(stop=Stop(), timeout_s=PATIENCE_S) == Wakeup(all_hosts=True)
        bench = Bench(store=frontend, url=pooled_url)
        bench.board()
        submitted = threading.Timer(0.2, bench.submit)
        submitted.start()
        heard = daemon.listen(stop=Stop(), timeout_s=PATIENCE_S)
        submitted.join()
        assert heard == Wakeup(gpu_types=frozenset({"CPU"}))


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
    host, port = expected
    kept = {"user": "u", "password": "p", "dbname": "d", "sslmode": "require", "hostaddr": ""}
    assert found == {"host": host, "port": port, **kept}
    assert direct_address("host=a", None) == "host=a"
    with pytest.raises(ConfigError):
        direct_address("no address", given)
