"""A database that was made by the first twelve migrations and one that is made now are the same after `migrate`.

`tests/fixtures/schema_0012.sql` is such an old database, as pg_dump writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import tuple_row

from runner.model import Verdict
from runner.store import Store, migrate, migrations, schema
from tests.integration.store.conftest import Bench, result, run_record

OLD = Path(__file__).parents[2] / "fixtures" / "schema_0012.sql"
FOLDERS = {kind: Path(schema.__file__).parent / f"{kind}s" for kind in ("function", "view")}

#: Every object of our schemas, KernelBot's and its bookkeeping, with what it is. Object ids differ, so none is in it.
OBJECTS = """
WITH home AS (
    SELECT oid, nspname, nspacl FROM pg_namespace WHERE nspname IN ('leaderboard', 'runner', 'public')
), relation AS (
    SELECT c.*, n.nspname, n.nspname || '.' || c.relname AS name FROM pg_class c JOIN home n ON n.oid = c.relnamespace
)
SELECT 'schema' AS kind, nspname::text AS name, concat(nspacl) AS what FROM home
UNION ALL
SELECT 'relation', name, concat_ws(' | ', relkind, relpersistence, relacl, relreplident, pg_get_userbyid(relowner),
    (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(reloptions) AS o), obj_description(oid, 'pg_class'))
FROM relation
UNION ALL
SELECT 'column', concat_ws('.', r.name, a.attname), concat_ws(' | ', a.attnum, format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attidentity, a.attgenerated, a.attacl, a.attstattarget, a.attstorage, a.attcompression,
    a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid), col_description(r.oid, a.attnum))
FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
UNION ALL
SELECT 'index', i.name, concat_ws(' | ', pg_get_indexdef(i.oid), x.indisvalid, x.indisunique, x.indisprimary)
FROM relation i JOIN pg_index x ON x.indexrelid = i.oid
UNION ALL
SELECT 'constraint', concat_ws('.', coalesce(r.name, n.nspname), k.conname), concat_ws(' | ',
    pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable, obj_description(k.oid, 'pg_constraint'))
FROM pg_constraint k JOIN home n ON n.oid = k.connamespace LEFT JOIN relation r ON r.oid = k.conrelid
UNION ALL
SELECT 'sequence', r.name, concat_ws(' | ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin,
    s.seqcache, s.seqcycle, (SELECT string_agg(concat_ws('.', d.refobjid::regclass, d.refobjsubid, d.deptype), ',')
                 FROM pg_depend d WHERE d.objid = r.oid AND d.refobjsubid > 0))
FROM relation r JOIN pg_sequence s ON s.seqrelid = r.oid
UNION ALL
SELECT 'view', name, pg_get_viewdef(oid) FROM relation WHERE relkind IN ('v', 'm')
UNION ALL
SELECT 'rule', concat_ws('.', r.name, w.rulename), pg_get_ruledef(w.oid)
FROM relation r JOIN pg_rewrite w ON w.ev_class = r.oid
UNION ALL
SELECT 'trigger', concat_ws('.', r.name, t.tgname), pg_get_triggerdef(t.oid)
FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'policy', concat_ws('.', r.name, p.polname), p.polcmd::text
FROM relation r JOIN pg_policy p ON p.polrelid = r.oid
UNION ALL
SELECT 'function', p.oid::regprocedure::text, concat_ws(' | ', pg_get_functiondef(p.oid), p.proacl,
    pg_get_userbyid(p.proowner), obj_description(p.oid, 'pg_proc'))
FROM pg_proc p JOIN home n ON n.oid = p.pronamespace
UNION ALL
SELECT 'type', concat_ws('.', n.nspname, t.typname), concat_ws(' | ', t.typtype, t.typcategory, t.typacl,
    format_type(t.typbasetype, t.typtypmod), obj_description(t.oid, 'pg_type'))
FROM pg_type t JOIN home n ON n.oid = t.typnamespace
UNION ALL
SELECT 'version', 'runner.migration', version_num FROM runner.migration
"""


def inventory(url: str) -> dict[tuple[str, str], str]:
    """What there is: kind and name of each object, and all that can be said of it."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        found = connection.execute(OBJECTS.encode()).fetchall()
    objects = {(kind, name): what for kind, name, what in found}
    assert len(objects) == len(found), "two objects have the same name here"
    return objects


def run(url: str, statements: str) -> None:
    """Run statements on a connection of their own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


@pytest.fixture
def old_url(empty_database_url: str) -> str:
    """A database at version 0012_demands, made without the files of today."""
    run(empty_database_url, OLD.read_text(encoding="utf-8"))
    return empty_database_url


def test_an_old_database_becomes_what_a_fresh_one_is(old_url: str, lend_database: Callable[[str | None], str]) -> None:
    """Object by object: functions, views, tables, columns, keys, indexes, sequences, types, comments and grants."""
    fresh_url = lend_database(None)
    assert migrate(fresh_url) == migrations.versions()
    assert migrate(old_url) == migrations.versions()[1:]
    fresh = inventory(fresh_url)
    assert len(fresh) > 800
    assert inventory(old_url) == fresh
    for url in (fresh_url, old_url):
        migrate(url, roles=True)
    assert inventory(old_url) == inventory(fresh_url) != fresh


def test_a_function_or_view_that_was_changed_is_put_right(
    old_url: str, lend_database: Callable[[str | None], str], migrated_template: str
) -> None:
    """Each thing that the comparison is made of is seen when it differs; what the files say is put right."""
    migrate(old_url, roles=True)
    right = inventory(old_url)
    assert inventory(lend_database(migrated_template)) == right
    run(
        old_url,
        "CREATE OR REPLACE FUNCTION runner.with_cause(causes jsonb, cause jsonb) RETURNS jsonb LANGUAGE sql"
        " AS 'SELECT causes';"
        "GRANT EXECUTE ON FUNCTION runner.settle(integer) TO PUBLIC;"
        "CREATE OR REPLACE VIEW runner.demand AS SELECT l.name AS leaderboard, 'claimed' AS timing,"
        " 0.2::double precision AS tolerance FROM leaderboard.leaderboard l;"
        "COMMENT ON VIEW runner.ranking IS 'Another'",
    )
    changed = inventory(old_url)
    assert {name for name, what in changed.items() if right[name] != what} == {
        ("function", "runner.with_cause(jsonb,jsonb)"),
        ("function", "runner.settle(integer)"),
        ("view", "runner.demand"),
        ("rule", "runner.demand._RETURN"),
        ("relation", "runner.ranking"),
    }
    migrate(old_url)
    assert inventory(old_url) == right


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("CREATE INDEX extra_idx ON runner.job (slot)", "index"),
        ("ALTER TABLE runner.job ALTER COLUMN slot SET DEFAULT 'x'", "column"),
        ("COMMENT ON COLUMN runner.job.slot IS 'Another'", "column"),
        ("ALTER TABLE runner.job ADD CHECK (attempt < 1000)", "constraint"),
        ("ALTER TABLE runner.job RESET (fillfactor)", "relation"),
        ("ALTER SEQUENCE runner.job_id_seq INCREMENT BY 2", "sequence"),
        ("GRANT SELECT ON runner.job TO PUBLIC", "relation"),
        ("COMMENT ON TYPE runner.evaluation IS 'Another'", "type"),
        (
            "CREATE TRIGGER extra BEFORE UPDATE ON runner.job EXECUTE FUNCTION tsvector_update_trigger('a', 'b')",
            "trigger",
        ),
    ],
)
def test_the_comparison_sees_a_difference(database_url: str, statement: str, kind: str) -> None:
    """An object that is changed, and one that is added."""
    before = inventory(database_url)
    run(database_url, statement)
    after = inventory(database_url)
    assert kind in {found for (found, _) in dict(after.items() ^ before.items())}


def test_every_function_and_view_has_its_file(database_url: str) -> None:
    """The database has those of the files, and no other."""
    found = [(kind, name) for kind, name in inventory(database_url) if name.startswith("runner.")]
    for kind, folder in FOLDERS.items():
        names = {name.removeprefix("runner.").partition("(")[0] for made, name in found if made == kind}
        assert names == {path.stem for path in folder.glob("*.sql")}


def test_an_upgrade_takes_the_queue_along(old_url: str) -> None:
    """What ran is completed by its attempt, what waited is served, and a long queue of one user delays no new one."""
    run(
        old_url,
        "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)"
        " VALUES ('identity', now() + interval '1 day', '{}', 0, '');"
        "INSERT INTO leaderboard.gpu_type SELECT id, 'CPU' FROM leaderboard.leaderboard;"
        "SELECT runner.submit('identity', 'u1', 'x.py', 'x', 'test') FROM generate_series(1, 4)",
    )
    run(old_url, "SELECT * FROM runner.claim('host-a', '{CPU}', '{1}', 60)")
    migrate(old_url)
    bench = Bench(store=Store(old_url, application_name="test"), url=old_url)
    try:
        newcomer = bench.submit(user_id="u2")
        later = bench.submit()
        second = bench.claim_of(newcomer)
        with psycopg.connect(old_url, row_factory=tuple_row) as connection:
            ((started_at,),) = connection.execute("SELECT started_at FROM runner.job WHERE id = 1").fetchall()
        running = replace(second, id=1, submission_id=1, started_at=started_at)
        assert bench.store.complete(running, result(Verdict.ACCEPTED, run_record())).submission_done
        assert [bench.claim().submission_id for _ in range(4)] == [2, 3, 4, later]
    finally:
        bench.store.close()
