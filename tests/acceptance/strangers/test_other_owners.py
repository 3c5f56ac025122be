"""A superuser, or a member of the owner, migrates a database that the owner made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from runner.store import migrate, schema
from tests.plugins.live import ROOT

OWNER = "kernel_runner_test_owner"
FIRST_RELEASE = Path(ROOT / "tests" / "fixtures" / "release_0.1.0.sql")
OWNERS = """
SELECT DISTINCT pg_get_userbyid(owner) FROM (
    SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'runner'::regnamespace
    UNION SELECT proowner FROM pg_proc WHERE pronamespace = 'runner'::regnamespace
) AS objects
"""
#: What gives each object to the superuser, but the first table.
TAKE = """
SELECT format('ALTER TABLE %s OWNER TO CURRENT_USER', oid::regclass) FROM pg_class
WHERE relnamespace = 'runner'::regnamespace AND relkind IN ('r', 'v') AND oid <> 'runner.job'::regclass
UNION ALL SELECT format('ALTER TYPE %s OWNER TO CURRENT_USER', oid::regclass) FROM pg_class
WHERE relnamespace = 'runner'::regnamespace AND relkind = 'c'
UNION ALL SELECT format('ALTER FUNCTION %s OWNER TO CURRENT_USER', oid::regprocedure) FROM pg_proc
WHERE pronamespace = 'runner'::regnamespace
"""


def fetch(url: str, *statements: str) -> list[str]:
    """Run them; the first column of the last."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return [row[0] for row in cursor] if cursor.description else []


@pytest.fixture
def owner(postgres_url: str) -> Iterator[str]:
    """A login without special rights; it is set up before the database, and goes after it."""
    fetch(postgres_url, f"CREATE ROLE {OWNER} LOGIN")
    yield OWNER
    fetch(postgres_url, f"DROP ROLE {OWNER}")


@pytest.fixture
def owned(owner: str, empty_database_url: str) -> str:
    """The address, as the owner, of a database of the first release."""
    name = psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]
    fetch(empty_database_url, f"ALTER DATABASE {name} OWNER TO {owner}")
    url = make_conninfo(empty_database_url, user=owner)
    fetch(url, FIRST_RELEASE.read_text(encoding="utf-8"))
    return url


def test_what_a_superuser_migrates_is_its_owners(owned: str, empty_database_url: str) -> None:
    """Each object, so that the functions may use the new ones; the owner itself then migrates as before."""
    assert migrate(empty_database_url, roles=True) == tuple(schema.migrations())
    assert fetch(empty_database_url, OWNERS) == [OWNER]
    assert migrate(owned) == ()


def test_what_a_superuser_once_made_is_given_back(owned: str, empty_database_url: str) -> None:
    """As earlier releases left it: every object but the first table, and one that is not ours, which stays."""
    migrate(owned)
    fetch(empty_database_url, *fetch(empty_database_url, TAKE))
    fetch(empty_database_url, "CREATE TABLE runner.of_a_website (id int)")
    assert migrate(empty_database_url) == ()
    assert len(fetch(empty_database_url, OWNERS)) == 2
    fetch(empty_database_url, "DROP TABLE runner.of_a_website")
    assert fetch(empty_database_url, OWNERS) == [OWNER]
