"""The connection against a real server: one that goes away, turns read-only, or sacrifices a transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from runner.base.errors import DatabaseUnavailableError
from runner.extras.store import AsyncStore
from runner.store.connection import Link
from runner.store.migrate import migrate
from runner.store.probe import probe
from runner.store.queries import Query
from tests.chaos.server import Server
from tests.support.waiting import PATIENCE_S, wait_until

Connection = psycopg.Connection[dict[str, object]]


@pytest.fixture
def make_link(empty_database_url: str) -> Iterator[Callable[..., Link]]:
    """Makes links to an empty database."""
    made: list[Link] = []

    def make(*, writes: bool = False) -> Link:
        made.append(Link(empty_database_url, application_name="link", writes=writes))
        return made[-1]

    yield make
    for link in made:
        link.close()


def scalar(link: Link, statement: bytes) -> object:
    """The one value of a statement."""
    ((found,),) = (row.values() for row in link.all(Query(name="it", sql=statement)))
    return found


def run(link: Link, *statements: bytes) -> None:
    """Run statements, each by itself."""
    with link.open() as connection:
        for statement in statements:
            connection.execute(statement)


def set_for_all(link: Link, setting: str) -> None:
    """A setting of the database, for sessions that begin later."""
    name = scalar(link, b"SELECT format('%I', current_database())")
    run(link, f"ALTER DATABASE {name} SET {setting}".encode())


def test_a_session_has_our_settings_whatever_the_servers_default(make_link: Callable[..., Link]) -> None:
    """READ COMMITTED for locks; no compilation, which distributions make of every view of a new database.

    They are made after connecting: a pooler refuses them in the startup packet, or ignores them.
    """
    set_for_all(make_link(), "default_transaction_isolation = 'serializable'")
    set_for_all(make_link(), "jit = on")
    link = make_link()
    assert scalar(link, b"SHOW transaction_isolation") == "read committed"
    assert scalar(link, b"SHOW jit") == "off"
    found = b"SELECT setting || ' ' || source AS it FROM pg_settings WHERE name = 'statement_timeout'"
    assert scalar(link, found) == "60000 session"


def test_a_terminated_connection_is_an_outage_and_comes_back(make_link: Callable[..., Link]) -> None:
    """The call that meets it fails; the next one is on a new connection."""
    link, other = make_link(), make_link()
    pid = scalar(link, b"SELECT pg_backend_pid()")
    run(other, f"SELECT pg_terminate_backend({pid})".encode())
    with pytest.raises(DatabaseUnavailableError, match="terminating connection"):
        scalar(link, b"SELECT 1")
    assert scalar(link, b"SELECT 1") == 1


def test_a_server_turned_read_only_is_an_outage(make_link: Callable[..., Link]) -> None:
    """As a failover or a full disk leaves it: a write meets it on an open connection, a new one is refused."""
    link, admin = make_link(writes=True), make_link()
    run(link, b"CREATE TABLE public.t (x int)", b"SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailableError, match="read-only transaction; name the primary"):
        run(link, b"INSERT INTO public.t VALUES (1)")
    assert scalar(link, b"SHOW transaction_read_only") == "off", "on another connection"
    set_for_all(admin, "default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailableError, match="read-only"):
        scalar(make_link(writes=True), b"SELECT 1")
    # A frontend may read from it.
    assert scalar(make_link(), b"SELECT 1") == 1


def test_after_a_failover_the_other_address_is_used() -> None:
    """Two addresses: the connection is to the one that takes writes, whichever that is at the time."""

    def takes_writes(server: Server, word: bytes) -> None:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(b"SET default_transaction_read_only = off")
            connection.execute(b"ALTER SYSTEM SET default_transaction_read_only = " + word)
            connection.execute(b"SELECT pg_reload_conf()")

        def reloaded() -> bool:
            with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
                return connection.execute(b"SHOW default_transaction_read_only").fetchone() == (word.decode(),)

        wait_until(reloaded, "the server has reloaded its settings")

    with Server() as first, Server() as second:
        first.start()
        second.start()
        takes_writes(first, b"on")
        hosts = [str(server.socket_path.parent) for server in (first, second)]
        address = f"host={','.join(hosts)} user=postgres dbname=postgres"
        link = Link(address, application_name="link", writes=True)
        with link.open() as connection:
            assert connection.info.host == hosts[1]
        # What a daemon asks before it starts.
        migrate(f"{address} target_session_attrs=read-write")
        assert probe(address).pending == ()
        second.crash()
        with pytest.raises(DatabaseUnavailableError):
            scalar(link, b"SELECT 1")
        with pytest.raises(DatabaseUnavailableError, match="read-only"):
            scalar(link, b"SELECT 1")
        takes_writes(first, b"off")
        with link.open() as connection:
            assert connection.info.host == hosts[0]
        link.close()


def test_the_victim_of_a_deadlock_is_run_again(make_link: Callable[..., Link]) -> None:
    """Two transactions lock two rows in opposite order: both are done in the end."""
    admin = make_link()
    run(admin, b"CREATE TABLE public.t (id int PRIMARY KEY, n int)", b"INSERT INTO public.t VALUES (1, 0), (2, 0)")
    both = threading.Barrier(2)
    runs: list[int] = []

    def bump(first: int, second: int) -> None:
        link = make_link()

        def action(connection: Connection) -> None:
            connection.execute(b"UPDATE public.t SET n = n + 1 WHERE id = %s", (first,))
            runs.append(first)
            if len(runs) <= 2:
                both.wait(PATIENCE_S)
            connection.execute(b"UPDATE public.t SET n = n + 1 WHERE id = %s", (second,))

        link.run(action)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(bump, (1, 2), (2, 1)))
    assert scalar(admin, b"SELECT array_agg(n) FROM public.t") == [2, 2]
    assert len(runs) == 3


@pytest.mark.parametrize(
    "event",
    [
        b"DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
        (
            b"DO $$ BEGIN DROP FUNCTION public.f(); "
            b"CREATE FUNCTION public.f(OUT one int, OUT b int) AS 'SELECT 1,2' LANGUAGE sql; END$$"
        ),
    ],
)
def test_a_prepared_statement_that_is_gone_is_prepared_again(
    make_link: Callable[..., Link], empty_database_url: str, event: bytes
) -> None:
    """The statement is prepared again after `DEALLOCATE ALL`, and after a migration changed its columns."""
    link = make_link()
    query = Query(name="f", sql=b"SELECT f.* FROM public.f() AS f")
    again = Query(name="event", sql=event)
    link.all(Query(name="make", sql=b"CREATE FUNCTION public.f(OUT one int) AS 'SELECT 1' LANGUAGE sql"))

    async def guest() -> None:
        guests = AsyncStore(empty_database_url, queries={"f": query, "event": again}, connections=1, name="x")
        await guests.open()
        for _ in range(10):
            assert await guests.all("f")
        await guests.all("event")
        assert (await guests.row("f"))["one"] == 1
        await guests.close()

    for _ in range(10):
        assert link.all(query) == [{"one": 1}]
    link.all(again)
    assert link.all(query)[0]["one"] == 1
    asyncio.run(guest())


def test_a_lock_timeout_keeps_the_connection(make_link: Callable[..., Link]) -> None:
    """Another connection would have to wait just as long."""
    holder, link = make_link(), make_link(writes=True)
    run(holder, b"CREATE TABLE public.t (x int)")
    pid = scalar(link, b"SELECT pg_backend_pid()")
    run(link, b"SET lock_timeout = '10ms'")
    with holder.transaction() as connection:
        connection.execute(b"LOCK TABLE public.t")
        with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
            scalar(link, b"SELECT count(*) FROM public.t")
    assert scalar(link, b"SELECT pg_backend_pid()") == pid


def test_a_server_that_answers_nothing_is_an_outage(
    make_link: Callable[..., Link], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Frozen, or behind a proxy that holds the line: no thread waits for ever, in a transaction or not."""
    monkeypatch.setattr("runner.store.connection.ANSWER_S", 0.2)
    link = make_link()
    with pytest.raises(DatabaseUnavailableError, match=r"did not answer within 0\.2 s"):
        scalar(link, b"SELECT pg_sleep(30)")
    with pytest.raises(DatabaseUnavailableError, match="did not answer"):
        link.run(lambda connection: connection.execute(b"SELECT pg_sleep(30)"))
    assert caplog.records == []
    # What is answered soon may take longer than that on a busy machine.
    monkeypatch.setattr("runner.store.connection.ANSWER_S", PATIENCE_S)
    assert scalar(link, b"SELECT 1") == 1
