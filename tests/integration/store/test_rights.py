"""Every role against every table, column, view, sequence, function, type, schema and channel, and the database.

`tests/fixtures/rights.txt` lists for each object who may do what with it, inherited rights too; what it does not list
is forbidden. A new grant is a new word there. `public` is what every login may do. PostgreSQL has no rights on
channels: what each role may do there is tried, and a new channel is a new line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from runner.extras.boards.store import BoardStore
from runner.store import migrate, queries
from runner.store.probe import probe
from tests.integration.store.conftest import Bench

EXPECTED = Path(__file__).parents[2] / "fixtures" / "rights.txt"

#: Where functions and daemons send, and daemons and frontends listen.
CHANNEL = re.compile(r"(?:(?:tell|call|pg_notify)\('|LISTEN |SELECT ')(runner_\w+)")
#: Rights on the database, a schema, a whole relation, on columns of one on which there is no such right as a whole, on
#: functions and types; where one may be handed on, that is a line of its own.
RIGHTS = """
WITH role AS (
    SELECT rolname::text AS name FROM pg_roles WHERE rolname LIKE 'runner\\_%' AND NOT rolcanlogin
    UNION ALL SELECT 'public'
), home AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname IN ('leaderboard', 'runner', 'public')
), relation AS (
    SELECT c.oid, c.relkind, n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN home n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
), whole AS (
    SELECT unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS name
    UNION ALL SELECT 'MAINTAIN' WHERE current_setting('server_version_num')::integer >= 170000
)
SELECT r.name, 'database', string_agg(p.name, ', ' ORDER BY p.name)
FROM role r, unnest(ARRAY['CONNECT', 'CREATE', 'TEMPORARY']) AS p (name)
WHERE has_database_privilege(r.name, current_database(), p.name) GROUP BY 1
UNION ALL
SELECT r.name, 'type ' || t.oid::regtype, 'USAGE'
FROM role r, pg_type t JOIN home n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE coalesce(c.relkind = 'c', t.typtype <> 'b') AND has_type_privilege(r.name, t.oid, 'USAGE')
UNION ALL
SELECT CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END, 'to hand on ' || g.name, a.privilege_type
FROM (
    SELECT c.name, o.relacl AS acl FROM relation c JOIN pg_class o ON o.oid = c.oid
    UNION ALL
    SELECT concat(c.name, '.', o.attname), o.attacl FROM relation c JOIN pg_attribute o ON o.attrelid = c.oid
    UNION ALL SELECT f.oid::regprocedure::text, f.proacl FROM pg_proc f JOIN home n ON n.oid = f.pronamespace
    UNION ALL SELECT 'schema ' || o.nspname, o.nspacl FROM pg_namespace o JOIN home n ON n.oid = o.oid
    UNION ALL SELECT 'database', d.datacl FROM pg_database d WHERE d.datname = current_database()
) AS g
CROSS JOIN LATERAL aclexplode(g.acl) AS a
WHERE a.is_grantable AND (a.grantee = 0 OR a.grantee::regrole::text IN (SELECT r.name FROM role r))
UNION ALL
SELECT CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END,
       concat('what ', d.defaclrole::regrole, ' makes (', d.defaclobjtype, ')'), a.privilege_type
FROM pg_default_acl d CROSS JOIN LATERAL aclexplode(d.defaclacl) AS a
UNION ALL
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
    'member of ' || (SELECT string_agg(concat(m.roleid::regrole, CASE WHEN m.admin_option THEN ' (admin)' END), ', ')
                     FROM pg_auth_members m WHERE m.member = r.oid))
FROM pg_roles r JOIN role ON role.name = r.rolname
"""

#: In `public`, for each name of a function of PostgreSQL's, functions of one and two arguments that end who calls them.
CAPTURES = """
DO $do$ DECLARE f record;
BEGIN
    FOR f IN WITH type (name) AS (
            SELECT unnest('{{text,text[],integer,integer[],bigint,bigint[],jsonb,json,timestamptz,float8}}'::text[])
        ), arguments (list) AS (
            SELECT name FROM type UNION ALL SELECT a.name || ', ' || b.name FROM type AS a, type AS b
        )
        SELECT p.proname AS name, a.list FROM (SELECT DISTINCT proname FROM pg_proc WHERE proname = ANY ({})) AS p,
            arguments AS a
    LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text LANGUAGE plpgsql AS '
            '$$BEGIN RAISE ''captured''; END$$', f.name, f.list);
    END LOOP;
END $do$
"""
#: What of ours calls them.
CAPTURED = """
SELECT pg_describe_object(d.classid, d.objid, d.objsubid), p.oid::regprocedure::text
FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
WHERE p.pronamespace = 'public'::regnamespace
"""


def rights(url: str) -> str:
    """What the roles may do in a database, as the file has it."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        found = connection.execute(RIGHTS.encode()).fetchall()
        roles = sorted({role for role, _, _ in found} - {"public"})
        found += [(role, f"channel {name}", right) for role in roles for name, right in on_channels(connection, role)]
    of_role: dict[tuple[str, str], list[str]] = defaultdict(list)
    for role, thing, right in sorted(found):
        of_role[thing, role].append(right)
    holders: dict[str, list[str]] = defaultdict(list)
    for (thing, role), given in sorted(of_role.items()):
        holders[f"{thing}: {', '.join(given) or 'no attribute'}"].append(role.removeprefix("runner_"))
    return "".join(f"{right}  [{' '.join(roles)}]\n" for right, roles in sorted(holders.items()))


def on_channels(connection: psycopg.Connection[tuple[object, ...]], role: str) -> list[tuple[str, str]]:
    """What a role may do on each channel that our functions and statements name."""
    texts = connection.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'runner'::regnamespace"
    ).fetchall()
    sources = [str(text) for (text,) in texts]
    sources += [query.sql.decode() for query in queries.QUERIES.values()]
    found: list[tuple[str, str]] = []
    for channel in sorted({name for text in sources for name in CHANNEL.findall(text)}):
        for right in ("LISTEN", "NOTIFY"):
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
                    connection.execute(sql.SQL(right + " {}").format(sql.Identifier(channel)))
            except psycopg.errors.InsufficientPrivilege:
                continue
            found.append((channel, right))
    return found


def test_every_role_can_read_what_it_may(database_url: str) -> None:
    """A view calls its functions as who reads it: each role reads each relation that it may read as a whole."""
    readable = """
        SELECT r.rolname::text, n.nspname::text, c.relname::text
        FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE r.rolname LIKE 'runner\\_%' AND NOT r.rolcanlogin AND n.nspname IN ('leaderboard', 'runner')
          AND c.relkind IN ('r', 'p', 'v', 'm') AND has_table_privilege(r.rolname, c.oid, 'SELECT') ORDER BY 1, 2, 3
    """
    unreadable = []
    with psycopg.connect(database_url, row_factory=tuple_row) as connection:
        found = connection.execute(readable).fetchall()
        for role, *name in found:
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
                    connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(*name)))
            except psycopg.errors.InsufficientPrivilege as error:
                unreadable.append(f"{role}, {'.'.join(name)}: {error.diag.message_primary}")
    assert len(found) > 100
    assert unreadable == []


@pytest.mark.parametrize("role", ["runner_gateway", "runner_discord", "runner_readonly", "runner_frontend"])
def test_no_condition_reads_what_a_view_leaves_out(
    queue: Bench, finish: Callable[..., None], database_url: str, role: str
) -> None:
    """A condition may be asked of rows before the view's own, and tell them by an error; readers choose such plans."""
    queue.submit(mode="leaderboard")
    finish()
    views = """
        SELECT c.oid::regclass::text, a.attname::text
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relkind = 'v' AND c.relnamespace = 'runner'::regnamespace AND has_table_privilege(%s, c.oid, 'SELECT')
    """
    # Not the microseconds of a time.
    hush = "CASE WHEN v.{}::text ~ 'hush|68757368|(^|[^.0-9])7777' THEN v.{}::text ELSE '1' END"
    with psycopg.connect(database_url, autocommit=True, row_factory=tuple_row) as connection:
        connection.execute("""
            UPDATE leaderboard.runs SET score = 7777, compilation = '"hush"', meta = '"hush"', result = '"hush"',
                system_info = '"hush"', start_time = '7777-01-01', end_time = '7777-01-01' WHERE secret
        """)
        connection.execute("UPDATE runner.job SET error = 'hush', report = '\"hush\"' WHERE secret")
        connection.execute("""
            INSERT INTO runner.artifact (job_id, name, media_type, data) SELECT j.id, 'hush', 'hush', 'hush'
            FROM runner.job j WHERE j.secret
        """)
        columns = connection.execute(views, [role]).fetchall()
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        for setting in ("jit", "enable_mergejoin", "enable_nestloop"):
            connection.execute(sql.SQL("SET {} = off").format(sql.Identifier(setting)))
            for view, column in columns:
                condition = hush.format(*[sql.Identifier(column).as_string()] * 2)
                connection.execute(f"SELECT FROM {view} AS v WHERE ({condition})::xid8 = '1'".encode())
    assert len(columns) > 50


def test_nothing_in_public_takes_the_place_of_what_is_postgresqls(empty_database_url: str) -> None:
    """Where `public` is open, as before PostgreSQL 15, closer types there would win, and have the caller's rights."""
    texts = [path.read_text(encoding="utf-8") for path in Path(queries.__file__).parents[1].rglob("*.sql")]
    names = sorted({name for text in texts for name in re.findall(r"\b([a-z]\w+)\(", text)})
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(CAPTURES).format(sql.Literal(names)))
        captures = connection.execute("SELECT count(*) FROM pg_proc WHERE prosrc LIKE '%captured%'").fetchone()
        assert captures is not None
        assert captures[0] > 1000
    migrate(empty_database_url, roles=True)
    assert probe(empty_database_url).direct
    assert migrate(empty_database_url) == ()
    with closing(BoardStore(empty_database_url, application_name="test")) as store:
        played = Bench(store=store, url=empty_database_url)
        played.board()
        played.submit()
        played.accept(played.claim())
        assert store.boards()
        assert not store.hosts()
        assert store.submission(1).jobs
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute(CAPTURED.encode()).fetchall() == []


def test_every_role_may_do_what_the_file_says_and_nothing_else(database_url: str) -> None:
    """On a database that `migrate --roles` made.

    A new grant is seen: of a column, a sequence, a function, to PUBLIC, to a role that inherits, and of what can be
    handed on or is to come.
    """
    before = rights(database_url)
    assert before.splitlines() == EXPECTED.read_text(encoding="utf-8").splitlines()
    for grant in (
        "GRANT SELECT (report) ON runner.job TO runner_frontend",
        "GRANT USAGE ON SEQUENCE runner.job_id_seq TO runner_daemon",
        "GRANT EXECUTE ON FUNCTION runner.settle(integer) TO PUBLIC",
        "GRANT TRUNCATE ON leaderboard.runs TO runner_operator",
        "GRANT CREATE ON SCHEMA runner TO runner_readonly",
        "GRANT CREATE ON SCHEMA public TO runner_daemon",
        f"GRANT CREATE ON DATABASE {psycopg.conninfo.conninfo_to_dict(database_url)['dbname']} TO runner_frontend",
        "GRANT SELECT ON runner.status TO runner_frontend WITH GRANT OPTION",
        "GRANT EXECUTE ON FUNCTION runner.cancel(bigint, text) TO runner_frontend WITH GRANT OPTION",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA runner GRANT SELECT ON TABLES TO runner_daemon",
        "CREATE TYPE runner.another AS ENUM ()",
        "CREATE FUNCTION runner.another() RETURNS void BEGIN ATOMIC SELECT pg_notify('runner_another', ''); END",
    ):
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(grant.encode())
        after = rights(database_url)
        assert after != before, grant
        before = after
    assert "channel runner_another: LISTEN, NOTIFY  [" in before
