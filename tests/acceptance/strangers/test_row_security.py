"""Row security on all tables, by an event trigger, and on each that other logins read."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from runner.base.errors import ConfigError, DatabaseUnavailableError
from runner.cli import check
from runner.daemon.serve import require_schema
from runner.store import migrate
from runner.store.probe import probe
from tests.plugins.live import ROOT
from tests.plugins.postgres import daemon_login

TRIGGER = """
CREATE FUNCTION public.secure() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    v_made record;
BEGIN
    FOR v_made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', v_made.object_identity);
    END LOOP;
END $$;
CREATE EVENT TRIGGER secure ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.secure();
"""


def execute(url: str, *statements: str) -> list[str]:
    """Run them as the owner; the first column of the last."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return [row[0] for row in cursor] if cursor.description else []


def documented() -> str:
    """The statement that makes those to run, from the manual."""
    page = Path(ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("### Rows that only the owner sees")[2]
    found = re.search(r"```sql\n(.*?)\\gexec", section, re.DOTALL)
    assert found is not None
    return found[1]


def test_an_event_trigger_that_secures_each_new_table(empty_database_url: str) -> None:
    """Everything is made; then the way out is said, and works."""
    execute(empty_database_url, TRIGGER)
    with pytest.raises(ConfigError, match=r"the schema is migrated, but row security hides the rows of \d\d tables"):
        migrate(empty_database_url, roles=True)
    login = daemon_login(empty_database_url)
    with pytest.raises(DatabaseUnavailableError, match="row security hides the rows"):
        require_schema(login)
    execute(empty_database_url, *execute(empty_database_url, documented()))
    assert migrate(empty_database_url) == ()
    require_schema(login)


@pytest.mark.parametrize("schema", ["runner", "leaderboard"])
def test_each_table_is_named(database_url: str, schema: str) -> None:
    """By itself; not where a policy shows its rows, and not to a login that sees them all the same."""
    login = daemon_login(database_url)
    tables = execute(
        database_url,
        sql.SQL("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = {}::regnamespace")
        .format(sql.Literal(schema))
        .as_string(),
    )
    assert len(tables) > 8
    for table in tables:
        name = sql.SQL(table)
        execute(database_url, sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(name).as_string())
        assert (probe(login).hidden, probe(database_url).hidden) == ((table,), ()), table
        execute(database_url, sql.SQL("CREATE POLICY p ON {} USING (true)").format(name).as_string())
        assert probe(login).hidden == ()


def test_check_says_it(database_url: str) -> None:
    """In place of a schema that is not there."""
    execute(database_url, "ALTER TABLE runner.migration ENABLE ROW LEVEL SECURITY")
    found = check._schema(probe(daemon_login(database_url)))
    assert "row security hides the rows of 1 tables (runner.migration)" in found.fact
