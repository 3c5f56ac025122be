"""What `migrate` makes, adopts, puts right and refuses; and beside frontends that submit and poll."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from runner.base.errors import ConfigError, DatabaseUnavailableError, SchemaDriftError
from runner.base.model import GroupJob, Verdict
from runner.extras.boards.store import BoardStore
from runner.store import migrate, queries, roles_sql, schema
from runner.store.probe import probe
from runner.store.queries import QUERIES
from tests.integration.store.conftest import Bench, ranked, result, run_record
from tests.integration.store.test_batches import found
from tests.support.waiting import PATIENCE_S, wait_until

VERSIONS = schema.versions()
#: SQL that makes a database of the first release, with a few rows.
FIRST_RELEASE = Path(__file__).parents[2] / "fixtures" / "release_0.1.0.sql"
#: Every object but functions and views: its kind, its name, and all that can be said of it but its rights.
CATALOGUE = """
WITH relation AS (
    SELECT c.*, c.oid::regclass::text AS name FROM pg_class c
    WHERE c.relnamespace IN ('runner'::regnamespace, 'leaderboard'::regnamespace) AND c.relkind <> 'v'
)
SELECT 'relation', name, concat_ws(' | ', relkind, relpersistence, reloptions, relrowsecurity,
    pg_get_indexdef(i.indexrelid), i.indisvalid, obj_description(c.oid, 'pg_class'))
FROM relation c LEFT JOIN pg_index i ON i.indexrelid = c.oid
UNION ALL
SELECT 'columns', name, string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN 'NOT NULL' END, a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid),
    a.attcollation, a.attcompression, a.attstorage, col_description(a.attrelid, a.attnum)), E'\n' ORDER BY a.attnum)
FROM relation c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
WHERE c.relkind = 'r' GROUP BY c.name
UNION ALL
SELECT 'constraint', concat_ws(' ', conname, name), concat_ws(' | ', pg_get_constraintdef(k.oid), k.convalidated,
    obj_description(k.oid, 'pg_constraint'))
FROM relation c JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype <> 'n'
UNION ALL
SELECT 'trigger', concat_ws(' ', tgname, name), pg_get_triggerdef(t.oid)
FROM relation c JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'sequence', name, concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
    d.deptype, d.refobjid::regclass, d.refobjsubid)
FROM relation c JOIN pg_sequence q ON q.seqrelid = c.oid
LEFT JOIN pg_depend d ON (d.classid, d.objid, d.refclassid) = ('pg_class'::regclass, c.oid, 'pg_class'::regclass)
UNION ALL
SELECT 'type', typname, concat_ws(' ', typtype, typnotnull, (
    SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid))
FROM pg_type t WHERE t.typnamespace IN ('runner'::regnamespace, 'leaderboard'::regnamespace)
"""


def fetch(url: str, query: str) -> list[tuple[Any, ...]]:
    """All rows of a query on a connection of its own."""
    with psycopg.connect(url, autocommit=True, row_factory=tuple_row) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def stored(url: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table."""
    tables = fetch(
        url,
        "SELECT c.oid::regclass::text, format('SELECT to_jsonb(t) FROM %s t ORDER BY 1', c.oid::regclass)"
        " FROM pg_class c WHERE c.relnamespace IN ('runner'::regnamespace, 'leaderboard'::regnamespace)"
        " AND c.relkind = 'r'",
    )
    return {table: [row for (row,) in fetch(url, query)] for table, query in tables}


def test_a_database_of_the_first_release_becomes_a_new_one_and_goes_on(
    empty_database_url: str, database_url: str
) -> None:
    """Each object is what it is in a new database, each row stays, and the jobs that waited are evaluated."""
    fetch(empty_database_url, FIRST_RELEASE.read_text(encoding="utf-8"))
    before = stored(empty_database_url)
    assert migrate(empty_database_url, roles=True) == tuple(schema.migrations())

    migrated, new = ({row[:2]: row[2] for row in fetch(url, CATALOGUE)} for url in (empty_database_url, database_url))
    assert migrated == new
    assert inventory(empty_database_url) == inventory(database_url)

    after, others = stored(empty_database_url), stored(database_url)
    assert before.keys() - after.keys() == {"runner.trace"}
    for table in after.keys() - before.keys():
        assert after[table] == others[table], table
    # But those that each `migrate` writes.
    for table in before.keys() & after.keys() - {"runner.migration", "runner.applied", "runner.score_mark"}:
        for old, now in zip(before[table], after[table], strict=True):
            columns = old.keys() - {"reserved_by", "reserved_until"}
            assert {name: old[name] for name in columns} == {name: now.get(name) for name in columns}, table

    with closing(BoardStore(empty_database_url, application_name="test")) as store:
        bench = Bench(store=store, url=empty_database_url)
        for _ in range(3):
            job = bench.claim()
            store.complete(job, found(job) if isinstance(job, GroupJob) else ranked(job, 5e-6))
    assert fetch(empty_database_url, "SELECT state, verdict FROM runner.status") == [("done", "accepted")] * 2
    assert fetch(empty_database_url, "SELECT user_id, rank FROM runner.ranking ORDER BY rank") == [("u1", 1), ("u2", 2)]
    assert fetch(empty_database_url, "SELECT verdict FROM runner.item_result") == [("accepted",)] * 2


def test_the_schema_has_no_object_that_kernelbots_has_not(database_url: str) -> None:
    """No trigger, function, view or type. Its tables are those of leaderboard.sql, its keys those that drift names."""
    others = fetch(
        database_url,
        "SELECT (SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        "        WHERE c.relnamespace = 'leaderboard'::regnamespace AND NOT tgisinternal),"
        " (SELECT count(*) FROM pg_proc WHERE pronamespace = 'leaderboard'::regnamespace),"
        " (SELECT count(*) FROM pg_class"
        "  WHERE relnamespace = 'leaderboard'::regnamespace AND relkind NOT IN ('r','i','S')),"
        " (SELECT count(*) FROM pg_type WHERE typnamespace = 'leaderboard'::regnamespace AND typtype = 'e')",
    )
    assert others == [(0, 0, 0, 0)]


def test_migrations_are_applied_once_and_in_order(
    database_url: str, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a database of an earlier release; one that is made now has all of it from the tables' files."""
    for name, text in schema.migrations().items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    (tmp_path / "9998_first.sql").write_text("CREATE TABLE runner.later (id bigint);", encoding="utf-8")
    (tmp_path / "9999_next.sql").write_text("INSERT INTO runner.later SELECT 100 % 7;", encoding="utf-8")
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path)
    facts = probe(database_url)
    assert (facts.version, facts.pending, facts.newer) == (VERSIONS[-1], ("9998_first", "9999_next"), False)
    assert migrate(database_url) == ("9998_first", "9999_next")
    assert migrate(database_url) == ()
    assert fetch(database_url, "SELECT id FROM runner.later") == [(2,)]
    assert probe(database_url).pending == ()
    assert migrate(empty_database_url) == (*VERSIONS, "9998_first", "9999_next")
    assert fetch(empty_database_url, "SELECT to_regclass('runner.later')") == [(None,)]
    assert probe(empty_database_url).version == "9999_next"


def test_concurrent_migrations_apply_each_version_once(empty_database_url: str) -> None:
    """Of four at once one makes the tables, and none fails."""
    barrier = threading.Barrier(4)

    def run(_: int) -> Sequence[str]:
        barrier.wait(timeout=PATIENCE_S)
        return migrate(empty_database_url)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(chain.from_iterable(threads.map(run, range(4)))) == list(VERSIONS)


def test_no_login_can_stop_a_migration(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An advisory lock, which every login may take, stops nothing; those that stop it no other role may take."""
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "TRIES", 1)
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "INDEX_TRIES", 1)
    fetch(database_url, "DROP INDEX runner.job_user_idx")
    with psycopg.connect(database_url) as other:
        other.execute("SET ROLE runner_readonly")
        other.execute("SELECT pg_advisory_lock(1)")
        migrate(database_url, roles=True)
    assert valid_indexes(database_url) == set(schema.indexes())
    for query in (QUERIES["migration_lock"], QUERIES["try_index_lock"]):
        for role in ("daemon", "frontend", "operator", "readonly", "gateway", "discord", "kernelboard"):
            with psycopg.connect(database_url) as other:
                other.execute(f"SET ROLE runner_{role}".encode())
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    other.execute(query.sql)


def test_a_backup_keeps_a_migration_from_its_locks(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told what to do; nothing is changed."""
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "TRIES", 1)
    fetch(database_url, "UPDATE runner.migration SET version_num = '0015_one_rule_one_bot'")
    with psycopg.connect(database_url) as backup:
        backup.execute("LOCK TABLE runner.job IN ACCESS SHARE MODE")
        with pytest.raises(DatabaseUnavailableError, match=r"(?s)as a backup does .*nothing was changed"):
            migrate(database_url)


def test_indexes_are_built_by_one_at_a_time(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once would wait for each other; the second says who is in the way."""
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "INDEX_TRIES", 1)
    fetch(database_url, "DROP INDEX runner.job_user_idx")
    with psycopg.connect(database_url) as builder:
        builder.execute(QUERIES["try_index_lock"].sql)
        with pytest.raises(DatabaseUnavailableError, match="another session keeps indexes from being built"):
            migrate(database_url)
    assert migrate(database_url) == ()
    assert valid_indexes(database_url) == set(schema.indexes())


@pytest.mark.parametrize("migrations", [29, 30])
@pytest.mark.parametrize("bookkeeping", ["public", "elsewhere", None])
def test_kernelbots_own_schema_is_adopted(
    create_database: Callable[[str | None], str], migrated_template: str, migrations: int, bookkeeping: str | None
) -> None:
    """Its tables, rows and records stay. Its thirtieth migration is applied and recorded as KernelBot does it."""
    url = create_database(migrated_template)
    fetch(url, "DROP SCHEMA runner CASCADE")
    fetch(url, "ALTER TABLE leaderboard.submission ADD COLUMN requested_gpus text[] NOT NULL DEFAULT '{}'")
    fetch(url, "INSERT INTO leaderboard.user_info (id, user_name) VALUES ('1', 'Ada')")
    snapshot = (
        "SELECT c.relname, a.attname, a.atttypid::text, a.attnotnull, pg_get_expr(d.adbin, d.adrelid), i.indexrelid"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)"
        " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indrelid::regclass::text !~ 'validation'"
        " WHERE c.relnamespace = 'leaderboard'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, 2, 6"
    )
    recorded = "SELECT migration_id, migration_hash FROM _yoyo_migration ORDER BY applied_at_utc"
    before, records = fetch(url, snapshot), fetch(url, recorded)
    if migrations == 29:
        fetch(url, "DROP TABLE leaderboard.validation_sweep, leaderboard.submission_validation")
        fetch(url, "DELETE FROM _yoyo_migration WHERE migration_id ~ 'application-validation'")
    if bookkeeping is None:
        fetch(url, "DROP TABLE _yoyo_migration, _yoyo_log, _yoyo_version, yoyo_lock")
    elif bookkeeping == "elsewhere":
        fetch(url, "CREATE SCHEMA other; ALTER TABLE _yoyo_migration SET SCHEMA other")
    assert tuple(migrate(url, roles=True)) == VERSIONS
    if (migrations, bookkeeping) == (29, "elsewhere"):
        assert fetch(url, "SELECT to_regclass('leaderboard.submission_validation')") == [(None,)]
    else:
        assert fetch(url, snapshot) == before
        reads = "SELECT has_table_privilege('runner_kernelboard', 'leaderboard.submission_validation', 'SELECT')"
        assert fetch(url, reads) == [(True,)]
    if bookkeeping == "public":
        assert fetch(url, recorded) == records
    assert fetch(url, "SELECT id, user_name FROM leaderboard.user_info") == [("1", "Ada")]
    with closing(BoardStore(url, application_name="test")) as store:
        assert store.boards() == []


def test_drift_is_refused_with_a_list_and_nothing_is_done(
    create_database: Callable[[str | None], str], migrated_template: str
) -> None:
    """Missing table, missing column, other type, unknown mandatory column, missing key: all named; nothing changed."""
    url = create_database(migrated_template)
    fetch(
        url,
        "DROP SCHEMA runner CASCADE; DROP TABLE leaderboard.rate_limit;"
        "ALTER TABLE leaderboard.runs DROP COLUMN system_info, ALTER COLUMN score TYPE text;"
        "ALTER TABLE leaderboard.submission ADD COLUMN team text NOT NULL;"
        "ALTER TABLE leaderboard.code_files DROP CONSTRAINT code_files_hash_key",
    )
    with pytest.raises(SchemaDriftError) as caught:
        migrate(url)
    assert caught.value.differences == (
        "column leaderboard.runs.score is text, expected numeric",
        "column leaderboard.runs.system_info is missing, expected jsonb",
        "table leaderboard.rate_limit is missing",
        "column leaderboard.submission.team is NOT NULL without a default and unknown to kernel-runner",
        "table leaderboard.code_files has no unique key on (hash)",
    )
    assert fetch(url, "SELECT to_regnamespace('runner')") == [(None,)]


def test_kernelbots_bookkeeping_is_seeded_as_yoyo_writes_it(database_url: str) -> None:
    """30 migrations are recorded with yoyo's hash (sha256 of the id), in order, and its lock is free."""
    recorded = fetch(database_url, "SELECT migration_id, migration_hash FROM _yoyo_migration ORDER BY applied_at_utc")
    assert len(recorded) == 30
    assert [name for name, _ in recorded] == sorted(name for name, _ in recorded)
    assert all(digest == hashlib.sha256(name.encode()).hexdigest() for name, digest in recorded)
    assert fetch(database_url, "SELECT max(version) FROM _yoyo_version") == [(2,)]
    assert fetch(database_url, "SELECT count(*), min(operation) FROM _yoyo_log") == [(30, "apply")]
    assert fetch(database_url, "SELECT count(*) FROM yoyo_lock") == [(0,)]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        # It cannot hold all source text.
        ("ENCODING 'LATIN1' LOCALE 'C'", "encoding is LATIN1, expected UTF8"),
        # `I` and `i` are two letters: a pause of `MI300`, or a search for a cause, would miss.
        ("ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr' LOCALE 'C'", "locale lowers I to another letter"),
    ],
    ids=["Latin 1", "Turkish"],
)
def test_a_database_of_another_encoding_or_locale_is_refused(postgres_url: str, settings: str, says: str) -> None:
    """Before anything is made in it."""
    name = "kernel_runner_test_foreign"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 {settings}".encode())
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("a Turkish locale needs a server with ICU (KERNEL_RUNNER_TEST_DATABASE_URL)")
        try:
            with pytest.raises(SchemaDriftError, match=says):
                migrate(psycopg.conninfo.make_conninfo(postgres_url, dbname=name))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_standby_is_told_from_the_primary(database_url: str) -> None:
    """An address of several servers may lead to one that takes no writes."""
    url = psycopg.conninfo.make_conninfo(database_url, options="-c default_transaction_read_only=on")
    with pytest.raises(DatabaseUnavailableError, match=r"takes no writes \(.*\); name the primary"):
        migrate(url)


def test_a_server_that_is_too_old_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every command, before the first statement of ours."""
    monkeypatch.setattr("runner.store.session.OLDEST_SERVER", 99_00_00)
    for command in (migrate, probe, lambda url: BoardStore(url, application_name="test").boards()):
        with pytest.raises(DatabaseUnavailableError, match=r"the server is PostgreSQL \d.*, expected 99 or later"):
            command(database_url)


@pytest.mark.usefixtures("migrated_template")
@pytest.mark.parametrize(
    "before",
    [
        "SELECT 1",
        "ALTER SCHEMA public OWNER TO CURRENT_USER; REVOKE ALL ON SCHEMA public FROM PUBLIC",
        "DROP SCHEMA public",
    ],
)
def test_an_owner_without_special_rights_migrates(postgres_url: str, before: str) -> None:
    """The roles are there for another database, `public` is locked or gone, another login has tables beside ours."""
    owner, other = "kernel_runner_test_plain", "kernel_runner_test_other"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {owner} LOGIN; CREATE ROLE {other} LOGIN IN ROLE runner_frontend")
        connection.execute(f"CREATE DATABASE {owner} OWNER {owner} TEMPLATE template0")
        try:
            url, others = (
                psycopg.conninfo.make_conninfo(postgres_url, dbname=owner, user=user) for user in (owner, other)
            )
            fetch(psycopg.conninfo.make_conninfo(postgres_url, dbname=owner), before)
            with pytest.raises(ConfigError, match=r"(?s)lacks a right .*--print-roles"):
                migrate(others)
            assert migrate(url), "nothing had been applied"
            fetch(url, f"GRANT USAGE, CREATE ON SCHEMA leaderboard TO {other}")
            fetch(others, "CREATE TABLE leaderboard.of_a_website (id serial PRIMARY KEY)")
            assert migrate(url, roles=True) == ()
            with closing(BoardStore(url, application_name="test")) as store:
                Bench(store=store, url=url).board()
            with closing(BoardStore(others, application_name="test")) as store:
                assert Bench(store=store, url=others).submit() == 1
        finally:
            connection.execute(f"DROP DATABASE {owner} WITH (FORCE)")
            connection.execute(f"DROP ROLE {owner}, {other}")


def test_sequences_that_are_behind_their_tables_are_raised(database_url: str) -> None:
    """Logical replication leaves them so. Until then nothing is lost: the database counts as away."""
    restart = """SELECT format('ALTER SEQUENCE %s RESTART', oid::regclass) FROM pg_class
        WHERE relkind = 'S' AND relnamespace IN ('runner'::regnamespace, 'leaderboard'::regnamespace)"""
    done = result(Verdict.ACCEPTED, run_record())
    with closing(BoardStore(database_url, application_name="test")) as store:
        bench = Bench(store=store, url=database_url)
        bench.board()
        jobs = [bench.claim_of(bench.submit(user_id=user, code=user.encode())) for user in ("a", "b")]
        store.complete(jobs[0], done)
        for (statement,) in fetch(database_url, restart):
            fetch(database_url, statement)
        for call in (partial(bench.submit, code=b"c"), partial(store.complete, jobs[1], done)):
            with pytest.raises(DatabaseUnavailableError, match=r"behind its table, .*kernel-runner migrate"):
                call()
        assert migrate(database_url) == ()
        assert store.complete(jobs[1], done).submission_done
        assert bench.submit(code=b"c") == 3
        assert migrate(database_url) == ()
        assert bench.submit(code=b"d") == 4


def test_only_the_owner_may_execute_our_functions(database_url: str) -> None:
    """No function is open to PUBLIC; each has a pinned search_path, or was parsed when it was made."""
    functions = fetch(
        database_url,
        "SELECT proname, has_function_privilege('public', oid, 'EXECUTE'), proconfig, prosqlbody IS NOT NULL"
        " FROM pg_proc WHERE pronamespace = 'runner'::regnamespace",
    )
    assert {"submit", "enqueue", "cancel", "settle"} <= {name for name, *_ in functions}
    for name, public, settings, parsed in functions:
        assert not public, name
        assert parsed or "search_path=pg_catalog, pg_temp" in settings, name


def test_a_version_of_a_later_release_is_refused_with_the_way_out(empty_database_url: str) -> None:
    """Nothing is done, and `check` tells that it is newer."""
    fetch(
        empty_database_url,
        "CREATE SCHEMA runner; CREATE TABLE runner.migration (version_num text PRIMARY KEY);"
        "INSERT INTO runner.migration VALUES ('9999_future')",
    )
    with pytest.raises(ConfigError, match=r"at version '9999_future', which .* does not know.* Update kernel-runner"):
        migrate(empty_database_url)
    assert fetch(empty_database_url, "SELECT to_regnamespace('leaderboard')") == [(None,)]
    facts = probe(empty_database_url)
    assert (facts.version, facts.pending, facts.newer) == ("9999_future", (), True)


def test_roles_lose_what_was_granted_beside_ours(database_url: str) -> None:
    """Rights to write tables, and to call what is for the owner only."""
    fetch(
        database_url,
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA leaderboard, runner TO runner_daemon;"
        "GRANT EXECUTE ON FUNCTION runner.settle(integer) TO runner_daemon",
    )
    fetch(database_url, roles_sql())
    kept = fetch(
        database_url,
        "SELECT has_function_privilege('runner_daemon', 'runner.settle(integer)', 'EXECUTE'),"
        " has_sequence_privilege('runner_daemon', 'leaderboard.runs_id_seq', 'USAGE'),"
        " has_function_privilege('runner_daemon', 'runner.complete(jsonb)', 'EXECUTE')",
    )
    assert kept == [(False, False, True)]


def test_large_indexes_are_built_while_others_write(database_url: str) -> None:
    """A transaction that has written to the tables is waited for; another that writes meanwhile waits for nothing."""
    fetch(database_url, "DROP INDEX runner.job_user_idx")
    outcomes: list[object] = []
    with psycopg.connect(database_url) as writes:
        writes.execute("UPDATE runner.job SET priority = 0; UPDATE leaderboard.runs SET score = 1")
        thread = threading.Thread(target=lambda: outcomes.append(migrate(database_url)))
        thread.start()
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INDEX CONCURRENTLY%'"
        wait_until(lambda: fetch(database_url, waits), "the index waits for the transaction")
        fetch(
            database_url,
            "SET lock_timeout = '1s'; INSERT INTO runner.clock (gpu_type, priority, turn) VALUES ('x', 1, 1);"
            "UPDATE runner.job SET priority = 1",
        )
        assert outcomes == []
    thread.join(timeout=PATIENCE_S)
    assert outcomes == [()]
    assert valid_indexes(database_url) == set(schema.indexes())


def valid_indexes(url: str) -> set[str]:
    """Those of our own files that are there and whole."""
    found = fetch(
        url,
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid"
        " AND c.relnamespace IN ('runner'::regnamespace, 'leaderboard'::regnamespace)",
    )
    return {name for (name,) in found} & set(schema.indexes())


def test_an_index_that_is_held_up_costs_nothing_but_itself(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is migrated, the error says what is left and why, and the next call builds it anew."""
    settings = queries.Query(
        name="x", sql=b"SELECT set_config('lock_timeout', '1s', false), set_config('statement_timeout', '0', false)"
    )
    fetch(database_url, "DROP INDEX runner.job_user_idx")
    monkeypatch.setattr(sys.modules["runner.store.migrate"], "QUERIES", {**queries.QUERIES, "index_settings": settings})
    with psycopg.connect(database_url) as writes:
        writes.execute("LOCK TABLE runner.job IN ROW EXCLUSIVE MODE")
        says = "the schema is migrated, but index job_user_idx is not built"
        with pytest.raises(DatabaseUnavailableError, match=says):
            migrate(database_url)
    assert valid_indexes(database_url) == set(schema.indexes()) - {"job_user_idx"}
    assert migrate(database_url) == ()
    assert valid_indexes(database_url) == set(schema.indexes())


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


def test_a_function_or_view_that_was_changed_is_put_right(database_url: str) -> None:
    """Its body, its rights, its definition and its comment."""
    right = inventory(database_url)
    fetch(
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
    fetch(database_url, "CREATE PUBLICATION everything FOR ALL TABLES")
    with psycopg.connect(database_url, row_factory=tuple_row) as connection:
        tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_|^information_schema'"
        for schema_name, table in connection.execute(tables).fetchall():
            connection.execute(sql.SQL("DELETE FROM {} WHERE false").format(sql.Identifier(schema_name, table)))
    fetch(database_url, "UPDATE runner.applied SET files = 'others'")
    migrate(database_url, roles=True)
    fetch(database_url, "SELECT runner.keep_scores(1) FROM runner.reap('30 days', 100)")


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
