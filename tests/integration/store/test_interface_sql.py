"""What frontends and operators may call and read, as the database's catalogue has it."""

from __future__ import annotations

from typing import Any

from tests.integration.store.conftest import Db
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


def test_functions(db: Db) -> None:
    """Names, arguments with types and defaults, results, and who may call them."""
    found = db.execute(FUNCTIONS.encode(), {"roles": ROLES}).fetchall()
    compare("sql_functions", (shown(line) for line in found if line["roles"]))


def test_views_and_tables_of_the_runner(db: Db) -> None:
    """Columns with types, and who may read them."""
    found = db.execute(COLUMNS.encode(), {"roles": ROLES}).fetchall()
    for_frontends = {line["relation"] for line in found if set(line["roles"]) - {"runner_operator"}}
    assert for_frontends.isdisjoint(FOR_OPERATORS)
    wanted = {*for_frontends, *FOR_OPERATORS, ROWS}
    compare("sql_runner", (shown(line) for line in found if line["relation"] in wanted))


def test_words_of_columns(db: Db) -> None:
    """The words that a column may have. Tables and keys of KernelBot's: `migrate` refuses what differs."""
    found = db.execute(CONSTRAINTS.encode(), {"tables": FOR_OPERATORS}).fetchall()
    compare("sql_constraints", (str(line["it"]) for line in found))


def test_errors_and_channels(db: Db) -> None:
    """Whatever a function of the schema raises or notifies."""
    found = [
        db.execute(WORDS.encode(), {"pattern": word}).fetchall() for word in ("'(KR[0-9]{3})'", "'(runner_[a-z]+)'")
    ]
    assert all(found)
    compare("sql_errors_and_channels", (str(line["it"]) for lines in found for line in lines))
