"""What frontends and operators may call and read, as the database's catalogue has it, and what NULL means there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.integration.store.conftest import TASK, Bench, Db, rows
from tests.integration.store.test_validations import VALIDATION, rank
from tests.unit.interfaces.fixtures import compare

#: The roles of programs outside this project; the daemon's role is no interface.
ROLES = ["runner_frontend", "runner_operator", "runner_readonly"]
#: Tables that the pages for operators name. An operator may read the others, but they may change.
FOR_OPERATORS = ["runner.artifact", "runner.event", "runner.job", "runner.superseded_run"]
#: What `runner.matching` returns.
ROWS = "runner.evaluation"

FUNCTIONS = """
SELECT format('%%s(%%s) -> %%s', p.oid::regproc, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) AS it,
       ARRAY(SELECT r FROM unnest(%(roles)s::text[]) AS r WHERE has_function_privilege(r, p.oid, 'EXECUTE')) AS roles
FROM pg_proc p WHERE p.pronamespace = 'runner'::regnamespace
"""
COLUMNS = """
SELECT c.oid::regclass::text AS relation, format('%%s.%%s %%s', c.oid::regclass, a.attname,
              concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
                        'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
                        CASE WHEN a.attidentity <> '' THEN 'IDENTITY' END)) AS it,
       ARRAY(SELECT r FROM unnest(%(roles)s::text[]) AS r WHERE has_column_privilege(r, c.oid, a.attnum, 'SELECT'))
           AS roles
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'runner'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p', 'c')
"""
#: The words that a column may have.
CONSTRAINTS = """
SELECT format('%%s: %%s', k.conrelid::regclass, pg_get_constraintdef(k.oid)) AS it FROM pg_constraint k
WHERE k.conrelid = ANY(%(tables)s::regclass[]) AND k.contype = 'c' AND cardinality(k.conkey) = 1
"""
#: SQLSTATEs and channels in the source of the functions.
WORDS = """
SELECT DISTINCT found[1] AS it FROM pg_proc p, regexp_matches(p.prosrc, %(pattern)s, 'g') AS found
WHERE p.pronamespace = 'runner'::regnamespace
"""


def shown(line: dict[str, Any]) -> str:
    """An object, and the roles that may use it."""
    roles = " ".join(role.removeprefix("runner_") for role in line["roles"])
    return f"{line['it']}  [{roles}]" if roles else str(line["it"])


def test_the_catalogue_is_the_interface(db: Db) -> None:
    """Functions and who may call them, columns and who may read them, their words, errors and channels.

    Tables and keys of KernelBot's: `migrate` refuses what differs.
    """
    functions = db.execute(FUNCTIONS.encode(), {"roles": ROLES}).fetchall()
    compare("sql_functions", (shown(line) for line in functions if line["roles"]))
    columns = db.execute(COLUMNS.encode(), {"roles": ROLES}).fetchall()
    for_frontends = {line["relation"] for line in columns if set(line["roles"]) - {"runner_operator"}}
    assert for_frontends.isdisjoint(FOR_OPERATORS)
    wanted = {*for_frontends, *FOR_OPERATORS, ROWS}
    compare("sql_runner", (shown(line) for line in columns if line["relation"] in wanted))
    constraints = db.execute(CONSTRAINTS.encode(), {"tables": FOR_OPERATORS}).fetchall()
    compare("sql_constraints", (str(line["it"]) for line in constraints))
    words = [
        db.execute(WORDS.encode(), {"pattern": word}).fetchall() for word in ("'(KR[0-9]{3})'", "'(runner_[a-z]+)'")
    ]
    assert all(words)
    compare("sql_errors_and_channels", (str(line["it"]) for lines in words for line in lines))


# Drivers and ORMs give NULL for what their caller leaves out.
ITEMS: Final = """'[{"key": "a", "reference": "class Model: pass", "candidate": "x"}]'"""
KEY: Final = "ab" * 32
#: A call of each function that has a default other than NULL, and what shows its effect.
CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "batch_results": ("batch => 'stored'", "SELECT 1"),
    "enqueue": ("submission_id => 3, mode => 'benchmark', gpu_types => '{CPU}'", "SELECT priority FROM runner.job"),
    "final": ("leaderboard => 'identity', gpu_type => 'CPU'", "SELECT rounds FROM runner.final_sweep"),
    "rerun": ("submission_id => 1", "SELECT priority FROM runner.job"),
    "revoke_key": (f"key => '{KEY}', reason => 'stolen'", "SELECT revoked_from FROM runner.host_key"),
    "submit": (
        "leaderboard => 'open', user_id => 'ada', file_name => 'x.py', code => 'x', mode => 'test'",
        "SELECT priority FROM runner.job",
    ),
    "submit_batch": (f"items => {ITEMS}, gpu_type => 'CPU'", "SELECT settings FROM runner.job_group"),
    "validate": ("leaderboard => 'identity', gpu_type => 'CPU'", "SELECT count(*) FROM runner.job"),
}
DEFAULTS: Final = """
SELECT p.proname, a.name
FROM pg_proc p
CROSS JOIN LATERAL unnest(p.proargnames) WITH ORDINALITY AS a (name, number)
WHERE p.pronamespace = 'runner'::regnamespace AND a.number <= p.pronargs
  AND NOT pg_get_function_arg_default(p.oid, a.number::integer) LIKE 'NULL%%'
  AND (has_function_privilege('runner_frontend', p.oid, 'EXECUTE')
       OR has_function_privilege('runner_operator', p.oid, 'EXECUTE'))
ORDER BY 1, 2"""


def effect(db: Db, name: str, **arguments: str) -> tuple[Any, ...]:
    """What a call returns, but for numbers of new rows, and what it leaves; it is taken back."""
    call, seen = CALLS[name]
    call_arguments = ", ".join([call, *(f"{argument} => {text}" for argument, text in arguments.items())])
    query = f"SELECT * FROM runner.{name}({call_arguments})"  # noqa: S608 - names of ours
    with db.transaction(force_rollback=True):
        returned = db.execute(query.encode()).fetchall()
        left = rows(db, seen)
    return [{key: row[key] for key in row if not key.endswith("_id") and key != name} for row in returned], left


def test_null_for_an_optional_argument_is_its_default(bench: Bench, db: Db, finish: Callable[..., None]) -> None:
    """For every argument that has one, of every function of frontends and operators."""
    db.execute("INSERT INTO runner.gpu_type (name, vendor) VALUES ('CPU', 'none')")
    bench.board("open")
    bench.board(task={**TASK, "validation": VALIDATION})
    bench.register("host-a")
    rank(bench, finish, "ada", "bob")
    db.execute(b"SELECT runner.submit_batch(%s, 'CPU', batch => 'stored')", (ITEMS.strip("'").replace("a", "b"),))
    assert bench.submit(leaderboard="open") == 3
    db.execute(b"INSERT INTO runner.host_key (host, key) VALUES ('host-a', %s)", (KEY,))
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now() WHERE name = 'identity'")
    arguments = rows(db, DEFAULTS)
    assert {name for name, _ in arguments} == CALLS.keys()
    for name, argument in arguments:
        assert effect(db, name, **{argument: "NULL"}) == effect(db, name), (name, argument)
