"""A migration beside frontends that submit and poll: it gets its locks, keeps others waiting for seconds at most."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from runner.base.errors import DatabaseUnavailableError
from runner.store import migrate, schema
from tests.integration.store.test_migrate import fetch
from tests.support.waiting import PATIENCE_S

LATER = "9999_later"


@pytest.fixture
def old_url(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a leaderboard, that lacks a migration which changes the table of jobs."""
    text = "ALTER TABLE runner.job ADD COLUMN later integer NOT NULL DEFAULT 1"
    for name, migration in {**schema.migrations(), LATER: text}.items():
        (tmp_path / f"{name}.sql").write_text(migration, encoding="utf-8")
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path)
    fetch(
        database_url,
        "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)"
        " VALUES ('identity', now() + interval '1 day', '{}', 0, '');"
        "INSERT INTO leaderboard.gpu_type SELECT id, 'CPU' FROM leaderboard.leaderboard",
    )
    return database_url


@contextmanager
def forgotten(url: str, statement: str) -> Iterator[None]:
    """A transaction that has run a statement and stays open."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
        yield


def test_nothing_to_do_waits_for_no_reader(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for one of a view nor for one that holds every table: a wait would be in vain, and there is one try."""
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "TRIES", 1)
    with forgotten(database_url, "SELECT * FROM runner.status, runner.ranking, leaderboard.user_info"):
        assert migrate(database_url) == ()
        migrate(database_url, roles=True)


def test_functions_that_were_changed_wait_for_no_table(database_url: str) -> None:
    """Only views and functions are replaced, so a transaction that holds tables stops nothing."""
    fetch(
        database_url,
        "CREATE OR REPLACE FUNCTION runner.is_odd(value text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    )
    with forgotten(database_url, "SELECT * FROM runner.job, leaderboard.submission FOR UPDATE OF job, submission"):
        assert migrate(database_url) == ()
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT runner.is_odd('x')").fetchone() == (False,)


def test_a_reader_that_stays_costs_tries_and_others_go_on(old_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds for one, and nothing is half done; the message is the server's."""
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "TRIES", 1)
    with forgotten(old_url, "SELECT * FROM runner.status"):
        with pytest.raises(DatabaseUnavailableError, match=r"cannot migrate.*lock timeout"):
            migrate(old_url)
        fetch(old_url, "SELECT runner.submit('identity', 'u', 'x.py', 'x', 'test'); SELECT * FROM runner.status")
    assert migrate(old_url) == (LATER,)


def test_frontends_go_on_beside_a_migration(old_url: str) -> None:
    """They submit and poll, one of them in a transaction of seconds; no call of theirs fails or waits for long."""
    stop = threading.Event()
    errors: list[Exception] = []

    def call(statement: str, *, hold_s: float = 0.0) -> Callable[[], None]:
        def go() -> None:
            with psycopg.connect(old_url, autocommit=True) as connection:
                # What waits for longer fails; how fast the machine is does not matter.
                connection.execute("SET lock_timeout = '10s'")
                while not stop.is_set():
                    try:
                        with connection.transaction():
                            connection.execute(statement.encode())
                            stop.wait(hold_s)
                            connection.execute(b"SELECT count(*) FROM runner.job")
                    except psycopg.Error as error:
                        errors.append(error)

        return go

    calls = (
        call("SELECT runner.submit('identity', 'u1', 'x.py', 'x', 'test')"),
        call("SELECT runner.submit('identity', 'u2', 'x.py', 'x', 'leaderboard')"),
        call("SELECT count(*) FROM runner.status"),
        call("SELECT count(*) FROM runner.ranking", hold_s=1.0),
    )
    threads = [threading.Thread(target=go) for go in calls]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        assert migrate(old_url) == (LATER,)
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=PATIENCE_S)
    assert errors == []
