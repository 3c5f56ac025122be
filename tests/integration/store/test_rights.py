"""Every role against every table, column, view, sequence and function of both schemas.

`tests/fixtures/rights.txt` lists all that a role may do, inherited rights too; what it does not list is forbidden. A
new grant is a new line there.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.rows import tuple_row

EXPECTED = Path(__file__).parents[2] / "fixtures" / "rights.txt"

#: Rights on a schema, on a whole relation, on columns of one on which there is no such right as a whole, on functions.
RIGHTS = """
WITH role AS (
    SELECT rolname::text AS name FROM pg_roles WHERE rolname LIKE 'runner\\_%' AND NOT rolcanlogin
    UNION ALL SELECT 'public'
), home AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname IN ('leaderboard', 'runner')
), relation AS (
    SELECT c.oid, c.relkind, n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN home n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
), whole AS (
    SELECT unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS name
    UNION ALL SELECT 'MAINTAIN' WHERE current_setting('server_version_num')::integer >= 170000
)
SELECT r.name, 'schema ' || n.nspname, string_agg(p.name, ', ')
FROM role r, home n, unnest(ARRAY['USAGE', 'CREATE']) AS p (name)
WHERE has_schema_privilege(r.name, n.oid, p.name) GROUP BY 1, 2
UNION ALL
SELECT r.name, c.name, p.name FROM role r, relation c, whole p
WHERE c.relkind <> 'S' AND has_table_privilege(r.name, c.oid, p.name)
UNION ALL
SELECT r.name, c.name, concat(p.name, ' (', string_agg(a.attname, ', ' ORDER BY a.attname), ')')
FROM role r, relation c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped,
     unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (name)
WHERE c.relkind <> 'S' AND has_column_privilege(r.name, c.oid, a.attnum, p.name)
  AND NOT has_table_privilege(r.name, c.oid, p.name) GROUP BY r.name, c.name, p.name
UNION ALL
SELECT r.name, 'sequence ' || c.name, p.name
FROM role r, relation c, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p (name)
WHERE c.relkind = 'S' AND has_sequence_privilege(r.name, c.oid, p.name)
UNION ALL
SELECT r.name, f.oid::regprocedure::text, 'EXECUTE' FROM role r, pg_proc f JOIN home n ON n.oid = f.pronamespace
WHERE has_function_privilege(r.name, f.oid, 'EXECUTE')
UNION ALL
SELECT r.rolname::text, 'role', concat_ws(', ', CASE WHEN r.rolsuper THEN 'SUPERUSER' END,
    CASE WHEN r.rolcreaterole THEN 'CREATEROLE' END, CASE WHEN r.rolcreatedb THEN 'CREATEDB' END,
    CASE WHEN r.rolreplication THEN 'REPLICATION' END, CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' END,
    'member of ' || (SELECT string_agg(m.roleid::regrole::text, ', ') FROM pg_auth_members m WHERE m.member = r.oid))
FROM pg_roles r JOIN role ON role.name = r.rolname
"""


def rights(url: str) -> str:
    """What the roles may do in a database, as the file has it."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        found = connection.execute(RIGHTS.encode()).fetchall()
    found.sort()
    lines: list[str] = []
    for role in sorted({role for role, _, _ in found}):
        lines += ["", role]
        objects = [thing for name, thing, _ in found if name == role]
        for thing in dict.fromkeys(objects):
            given = ", ".join(right for name, other, right in found if (name, other) == (role, thing))
            lines.append(f"    {thing}: {given or 'no attribute'}")
    return "\n".join(lines).strip() + "\n"


def test_every_role_may_do_what_the_file_says_and_nothing_else(database_url: str) -> None:
    """On a database that `migrate --roles` made."""
    assert rights(database_url).splitlines() == EXPECTED.read_text(encoding="utf-8").splitlines()


def test_a_new_grant_is_seen(database_url: str) -> None:
    """A column, a sequence, a function, PUBLIC, and a role that inherits."""
    before = rights(database_url)
    for grant in (
        "GRANT SELECT (report) ON runner.job TO runner_frontend",
        "GRANT USAGE ON SEQUENCE runner.job_id_seq TO runner_daemon",
        "GRANT EXECUTE ON FUNCTION runner.settle(integer) TO PUBLIC",
        "GRANT TRUNCATE ON leaderboard.runs TO runner_operator",
        "GRANT CREATE ON SCHEMA runner TO runner_readonly",
    ):
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(grant.encode())
        after = rights(database_url)
        assert after != before, grant
        before = after
