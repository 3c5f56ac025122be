"""Functions and views are what their files say, whatever was done to them meanwhile."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from runner.store import migrate

#: Every function and view of ours, with what it is. Object ids differ, so none is in it.
OBJECTS = """
SELECT 'function' AS kind, p.oid::regprocedure::text AS name, concat_ws(' | ', pg_get_functiondef(p.oid), p.proacl,
    pg_get_userbyid(p.proowner), obj_description(p.oid, 'pg_proc')) AS what
FROM pg_proc p WHERE p.pronamespace = 'runner'::regnamespace
UNION ALL
SELECT 'view', 'runner.' || c.relname, concat_ws(' | ', pg_get_viewdef(c.oid), c.relacl, pg_get_userbyid(c.relowner),
    obj_description(c.oid, 'pg_class'))
FROM pg_class c WHERE c.relnamespace = 'runner'::regnamespace AND c.relkind = 'v'
"""


def inventory(url: str) -> dict[tuple[str, str], str]:
    """What there is: kind and name of each object, and all that can be said of it."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        return {(kind, name): what for kind, name, what in connection.execute(OBJECTS.encode()).fetchall()}


def run(url: str, statements: str) -> None:
    """Run statements on a connection of their own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def test_a_function_or_view_that_was_changed_is_put_right(database_url: str) -> None:
    """Its body, its rights, its definition and its comment."""
    right = inventory(database_url)
    run(
        database_url,
        "CREATE OR REPLACE FUNCTION runner.with_cause(causes jsonb, cause jsonb) RETURNS jsonb LANGUAGE sql"
        " AS 'SELECT causes';"
        "GRANT EXECUTE ON FUNCTION runner.settle(integer) TO PUBLIC;"
        "CREATE OR REPLACE VIEW runner.demand AS SELECT l.name AS leaderboard, 'claimed' AS timing,"
        " 0.2::double precision AS tolerance FROM leaderboard.leaderboard l;"
        "COMMENT ON VIEW runner.ranking IS 'Another'",
    )
    changed = inventory(database_url)
    assert {name for name, what in changed.items() if right[name] != what} == {
        ("function", "runner.with_cause(jsonb,jsonb)"),
        ("function", "runner.settle(integer)"),
        ("view", "runner.demand"),
        ("view", "runner.ranking"),
    }
    migrate(database_url)
    assert inventory(database_url) == right


def test_a_publication_of_all_tables_keeps_nothing_from_being_written(database_url: str) -> None:
    """As logical replication and moves to another server make it: a table without a key could only grow."""
    run(database_url, "CREATE PUBLICATION everything FOR ALL TABLES")
    with psycopg.connect(database_url, row_factory=tuple_row) as connection:
        tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_|^information_schema'"
        for schema_name, table in connection.execute(tables).fetchall():
            connection.execute(sql.SQL("DELETE FROM {} WHERE false").format(sql.Identifier(schema_name, table)))
    run(database_url, "UPDATE runner.applied SET files = 'others'")
    migrate(database_url, roles=True)
    run(database_url, "SELECT runner.keep_scores(1) FROM runner.reap('30 days', 100)")
