"""The network of a storm breaks as it says, and works again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.chaos.proxy import Cut, Proxy


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """An open proxy before the test's database."""
    with Proxy(Path(str(conninfo_to_dict(database_url)["host"])) / ".s.PGSQL.5432") as opened:
        yield opened


@pytest.fixture
def name(database_url: str) -> str:
    """The test's database."""
    return str(conninfo_to_dict(database_url)["dbname"])


def connect(proxy: Proxy, name: str) -> psycopg.Connection:
    """A connection through the proxy, or an error when it is refused."""
    return psycopg.connect(proxy.url(name), autocommit=True, connect_timeout=60)


def number(connection: psycopg.Connection) -> int:
    """A round trip."""
    row = connection.execute("SELECT 1").fetchone()
    assert row is not None
    return int(row[0])


def test_a_refusing_network_breaks_what_there_is_and_lets_nothing_in(proxy: Proxy, name: str) -> None:
    """Until it is healed, on the same port."""
    with connect(proxy, name) as before:
        assert number(before) == 1
        proxy.cut(Cut.REFUSE)
        with pytest.raises(psycopg.OperationalError):
            number(before)
        with pytest.raises(psycopg.OperationalError, match="refused"):
            connect(proxy, name)
        proxy.heal(late=False)
        with connect(proxy, name) as after:
            assert number(after) == 1


def test_a_reset_breaks_what_there_is_and_no_more(proxy: Proxy, name: str) -> None:
    """New connections work at once."""
    with connect(proxy, name) as before:
        assert number(before) == 1
        proxy.cut(Cut.RESET)
        with pytest.raises(psycopg.OperationalError):
            number(before)
        with connect(proxy, name) as after:
            assert number(after) == 1


@pytest.mark.parametrize("late", [True, False])
def test_a_black_hole_gives_no_error(proxy: Proxy, name: str, late: bool) -> None:
    """A statement hangs; when the hole is gone it is answered late, or its connection is found dead."""
    answers: list[object] = []

    def ask(connection: psycopg.Connection) -> None:
        try:
            answers.append(number(connection))
        except psycopg.OperationalError as error:
            answers.append(error)

    with connect(proxy, name) as connection:
        assert number(connection) == 1
        proxy.cut(Cut.BLACKHOLE)
        thread = threading.Thread(target=ask, args=(connection,), daemon=True)
        thread.start()
        thread.join(0.5)
        assert not answers
        proxy.heal(late=late)
        thread.join(60.0)
        assert answers == [1] if late else isinstance(answers[0], psycopg.OperationalError)


def test_what_a_deaf_process_sends_is_done(proxy: Proxy, name: str, database_url: str) -> None:
    """The statement is executed, its answer never comes."""
    errors: list[Exception] = []

    def write(connection: psycopg.Connection) -> None:
        try:
            connection.execute("CREATE TABLE heard ()")
        except psycopg.OperationalError as error:
            errors.append(error)

    with connect(proxy, name) as deaf:
        assert number(deaf) == 1
        proxy.cut(Cut.DEAF)
        thread = threading.Thread(target=write, args=(deaf,), daemon=True)
        thread.start()
        with psycopg.connect(database_url, autocommit=True) as looks:
            done = "SELECT pg_sleep(0.05), to_regclass('heard')"
            deadline = time.monotonic() + 60
            while (looks.execute(done).fetchone() or (None, None))[1] is None:
                assert time.monotonic() < deadline, "the statement is not executed"
        # Its answer has been swallowed, or is about to be.
        thread.join(0.5)
        proxy.heal(late=True)
        thread.join(60.0)
    assert len(errors) == 1
    with connect(proxy, name) as after:
        assert after.execute("SELECT to_regclass('heard') IS NOT NULL").fetchone() == (True,)
