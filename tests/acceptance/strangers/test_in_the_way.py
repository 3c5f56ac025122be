"""Objects of other programs under our names, or made from ours, where `migrate` makes, changes or drops something."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from runner.base.errors import ConfigError
from runner.store import migrate, schema
from tests.plugins.live import ROOT

FIRST_RELEASE = Path(ROOT / "tests" / "fixtures" / "release_0.1.0.sql")
#: Of each kind; in a database without our tables.
UNDER_OUR_NAMES = [
    "CREATE TABLE runner.migration (version int)",
    "CREATE TABLE runner.job (id int)",
    "CREATE VIEW runner.job AS SELECT 1 AS id",
    "CREATE TYPE runner.evaluation AS (id int)",
    "CREATE TABLE runner.status (id int)",
    "CREATE VIEW runner.status AS SELECT 1 AS id",
    "CREATE FUNCTION runner.is_odd(value text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION runner.is_odd(other text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    (
        "CREATE FUNCTION public.guard() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'ask first'; END $$;"
        "CREATE EVENT TRIGGER guard ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.guard()"
    ),
]
#: Of what the migrations drop.
MADE_FROM_OURS = [
    "CREATE VIEW public.theirs AS SELECT state FROM runner.status",
    "CREATE MATERIALIZED VIEW public.theirs AS SELECT state FROM runner.status",
    "CREATE VIEW public.theirs AS SELECT trace FROM runner.trace",
    "CREATE FUNCTION public.theirs(s runner.status) RETURNS text LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE public.theirs (s runner.status)",
]


def execute(url: str, *texts: str) -> None:
    """Run texts of several statements."""
    with psycopg.connect(url, autocommit=True) as connection:
        for text in texts:
            connection.execute(text.encode())


@pytest.mark.parametrize("theirs", UNDER_OUR_NAMES)
def test_what_has_our_name_is_named(empty_database_url: str, theirs: str) -> None:
    """And nothing is made; without it, all is."""
    execute(empty_database_url, "CREATE SCHEMA runner", theirs)
    with pytest.raises(ConfigError, match=r"cannot migrate: .*; nothing was changed\. .* another program"):
        migrate(empty_database_url)
    execute(empty_database_url, "DROP EVENT TRIGGER IF EXISTS guard", "DROP SCHEMA runner CASCADE")
    assert migrate(empty_database_url) == schema.versions()


@pytest.mark.parametrize("theirs", MADE_FROM_OURS)
def test_what_was_made_from_ours_is_named(empty_database_url: str, theirs: str) -> None:
    """And the database stays at its version; without it, all migrations are applied."""
    execute(empty_database_url, FIRST_RELEASE.read_text(encoding="utf-8"), theirs)
    with pytest.raises(ConfigError, match=r"because other objects depend on it: .*\btheirs\b.* depends on .*runner\."):
        migrate(empty_database_url)
    kind = theirs.partition("CREATE ")[2].partition(" public")[0]
    execute(empty_database_url, f"DROP {kind} public.theirs")
    assert migrate(empty_database_url) == tuple(schema.migrations())
