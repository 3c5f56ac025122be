"""A trigger that writes down what is stored, on each table that a submission and its result write."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from runner.base.errors import DatabaseUnavailableError
from runner.base.model import Verdict
from runner.cli import check
from runner.store.probe import probe
from tests.integration.store.conftest import Bench, bench, db, finish, result, run_record, store
from tests.plugins.postgres import daemon_login

__all__ = ["bench", "db", "finish", "store"]

NOTES = """
CREATE TABLE public.notes (what text);
GRANT INSERT ON public.notes TO PUBLIC;
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO notes VALUES (TG_TABLE_NAME); RETURN NEW; END $$;
"""
TABLES = (
    "leaderboard.submission", "leaderboard.code_files", "leaderboard.user_info", "leaderboard.runs",
    "leaderboard.submission_job_status", "runner.job",
)  # fmt: skip


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection[tuple[str, ...]]]:
    """A connection of the owner."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(NOTES)
        yield connection


@pytest.mark.parametrize("table", TABLES)
def test_a_trigger_without_a_search_path_is_named(
    bench: Bench, owner: psycopg.Connection[tuple[str, ...]], database_url: str, table: str
) -> None:
    """By `check` before, and by the error of what it refuses; with a search_path it goes with all of it."""
    bench.board()
    bench.register("host-a")
    owner.execute(
        sql.SQL("CREATE TRIGGER notes AFTER INSERT ON {} FOR EACH ROW EXECUTE FUNCTION public.note()").format(
            sql.SQL(table)
        )
    )
    login = daemon_login(database_url)
    (named,) = check._triggers(probe(login))
    assert named.fact.startswith(f"notes on {table} calls public.note(): ")

    with pytest.raises(DatabaseUnavailableError, match=r'"notes" does not exist \(PL/pgSQL function public\.note\(\)'):
        whole(bench)
    owner.execute("ALTER FUNCTION public.note() SET search_path = public")
    assert probe(login).unpinned_triggers == ()
    whole(bench)
    (noted,) = owner.execute("SELECT count(*) FROM public.notes").fetchall()
    assert noted[0]


def whole(bench: Bench) -> None:
    """A submission and its result."""
    bench.submit(code=b"x = 1")
    bench.store.complete(bench.claim(), result(Verdict.ACCEPTED, run_record("test", result={})))
