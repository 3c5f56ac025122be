"""Optional arguments: drivers and ORMs give NULL for what their caller leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.integration.store.conftest import TASK, Bench, Db, rows
from tests.integration.store.test_validations import VALIDATION, rank

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
