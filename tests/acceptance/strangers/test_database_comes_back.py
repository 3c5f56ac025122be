"""The database takes no writes for a while, or has not our schema; its connections stay. What serves many goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from runner.base.errors import DatabaseUnavailableError
from runner.extras.gateway.live import Live, Topic
from runner.extras.gateway.queries import QUERIES
from runner.extras.store import AsyncStore
from tests.integration.extras.gateway.conftest import Gate, gate, gateway_login, open_gate, statements
from tests.integration.extras.gateway.test_live import record
from tests.integration.extras.webhooks.conftest import Play, play, submit, target
from tests.integration.store.conftest import Bench, bench, db, finish, store
from tests.support.waiting import PATIENCE_S

__all__ = ["bench", "db", "finish", "gate", "open_gate", "play", "statements", "store", "submit", "target"]

#: More statements than one look of a live page sends.
LOOKS = 12
WRITES = ("-c", "default_transaction_read_only=off")
#: What is there for a while under another name, as in a restore, or beside another release; and what needs it.
AWAY = [
    "SCHEMA runner",
    "SCHEMA leaderboard",
    "VIEW runner.ranking",
    "TABLE leaderboard.runs",
    "FUNCTION runner.board_scores",
    "FUNCTION runner.derive_webhooks",
]


def execute(url: str, *statements: str) -> None:
    """As the owner, whatever the database's default is."""
    with psycopg.connect(url, autocommit=True, options=" ".join(WRITES)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """Every session that begins now takes no writes, also afterwards; those that were there are gone."""
    name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    execute(url, sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name).as_string(), end)
    yield
    execute(url, sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name).as_string())


@contextmanager
def away(url: str, what: str) -> Iterator[None]:
    """It has another name for a while."""
    kind, _, name = what.partition(" ")
    place, _, last = name.rpartition(".")
    other = f"{place}.of_before" if place else "of_before"
    execute(url, f"ALTER {kind} {name} RENAME TO of_before")
    yield
    execute(url, f"ALTER {kind} {other} RENAME TO {last}")


def test_sessions_of_a_read_only_time_are_not_kept(open_gate: Callable[..., Gate], gate: Gate) -> None:
    """Of a gateway, whose pool would keep them for half an hour, and of a store."""
    served = open_gate(patience_s=20.0)
    with read_only(gate.owner_url), ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(served.ask, "GET", "/user/submissions", cli="ada-token") for _ in range(8)]
        assert {answer.result().status for answer in asked} == {200}
        for says in ("terminating", "read-only"):
            with pytest.raises(DatabaseUnavailableError, match=says):
                gate.bench.submit()
    assert gate.bench.submit()
    assert [served.submit(code=b"x = %d" % number).status for number in range(4)] == [202] * 4


@pytest.mark.parametrize("what", AWAY)
def test_live_pages_go_on_when_the_schema_is_back(gate: Gate, statements: list[str], what: str) -> None:
    """Requests that need what is away are answered 503; the task that makes states looks again and again."""

    async def follow() -> None:
        store = AsyncStore(gateway_login(gate.owner_url), queries=QUERIES, connections=2, name="test")
        await store.open()
        live = Live(store)
        live.start()
        try:
            async with live.watch([Topic(board_id=1, gpu="CPU")]) as ((view,), changed):
                with away(gate.owner_url, what):
                    statements.clear()
                    while len(statements) < LOOKS:
                        live.heard(())
                        await asyncio.sleep(0.05)
                    answered = await asyncio.to_thread(gate.ask, "GET", "/board/identity")
                    assert answered.status in {200, 503}, answered.text
                await asyncio.to_thread(record, gate, 1e-5)
                live.heard(())
                while view.state is None or not view.state.records:
                    await changed.wait()
                    changed.clear()
        finally:
            await live.stop()
            await store.close()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))


def test_webhooks_go_on_when_their_schema_is_back(play: Play, submit: Callable[..., int], bench: Bench) -> None:
    """A look while something is away tells nothing; a later one tells all."""
    bench.board()
    play.configure(all=("record.new",))

    async def looks() -> None:
        async with play.sender() as sender:
            await sender.look()
            submit("ada", 10.0)
            for what in AWAY:
                with away(bench.url, what):
                    await sender.look()
                    await sender.finish()
            await sender.look()
            await sender.finish()

    asyncio.run(looks())
    assert [message.document["type"] for message in play.target.at("/all")] == ["record.new"]
