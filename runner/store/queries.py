"""Every SQL statement the store sends: those of its file, and calls of the functions of `schema/functions`.

Guests have their own, made in the same way.

In a file, a query starts with `-- name: <name>`, followed by at least one comment line with its purpose. Parameters
are `%(name)s`, so a literal percent sign is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEADER = re.compile(r"^-- name: (?P<name>\w+)\n(?:-- .*\n)+(?P<sql>(?:(?!-- name: ).*(?:\n|$))*)", re.MULTILINE)
_SIGNATURE: Final = re.compile(r"^(\w+)\((.*)\)( AS \w+)?$")
_ARGUMENT: Final = re.compile(r"(\w+) (.*)")


@dataclass(frozen=True, kw_only=True)
class Query:
    """A named statement."""

    name: str
    #: Bytes, because psycopg takes text only if it is a literal.
    sql: bytes


def parse(text: str) -> Mapping[str, Query]:
    """The queries of a file, by name.

    Raises:
        ValueError: a name that occurs twice, or a header without purpose or statement.
    """
    queries: dict[str, Query] = {}
    for match in _HEADER.finditer(text):
        name, sql = match["name"], match["sql"].strip()
        if name in queries or not sql:
            raise ValueError(f"queries.sql: {name!r} is {'there twice' if name in queries else 'empty'}")
        queries[name] = Query(name=name, sql=sql.encode())
    if len(queries) != text.count("-- name: "):
        raise ValueError("queries.sql: a '-- name:' line is not followed by a line of purpose and a statement")
    return queries


def call(signature: str) -> Query:
    """A call of a function of ours; `f(a text, b integer) AS c` sends parameters a and b, and names its value c."""
    name, arguments, result = _SIGNATURE.findall(signature)[0]
    values = ", ".join(_ARGUMENT.sub(r"%(\1)s::\2", argument) for argument in arguments.split(", "))
    sql = f"SELECT * FROM runner.{name}({values}){result}"  # noqa: S608 - of constants of this module
    return Query(name=name, sql=sql.encode())


def statements(module: str, *signatures: str) -> Mapping[str, Query]:
    """The queries of `queries.sql` beside a module's file, and a call for each signature, under the function's name."""
    text = Path(module).with_name("queries.sql").read_text(encoding="utf-8")
    return {**parse(text), **{query.name: query for query in map(call, signatures)}}


_CALLS: Final = (
    "cancel(submission_id bigint, user_id text) AS asked",
    "complete(results jsonb)",
    "complete_waiting(host text, instance text, result jsonb)",
    "drain(host text, reason text) AS changed",
    "fail(id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb)",
    "heartbeat(host text, lease_s float8, ids bigint[], attempts integer[], instance text)",
    "keep_file(job_id bigint, attempt integer, name text, media_type text, data bytea) AS kept",
    "keep_scores(limit integer) AS more",
    "pause(gpu_type text, reason text) AS changed",
    "publish_gpu_types(types jsonb) AS refused",
    "reclaim()",
    "recover(host text, ids bigint[], attempts integer[], died boolean, instance text)",
    "register(name text, version text, slots jsonb, instance text, gpu_types text[], key text)",
    "release(id bigint, attempt integer, submission_id integer, reason text)",
    "resume(gpu_type text) AS changed",
    "show_progress(id bigint, attempt integer, progress jsonb) AS held",
    "stopped(id bigint, attempt integer, submission_id integer)",
    (
        "submit(leaderboard text, user_id text, file_name text, code bytea, mode text, gpu_types text[], user_name "
        "text, priority integer, idempotency_key text, start_at timestamptz, expires_at timestamptz, options jsonb) "
        "AS submission_id"
    ),
    "undrain(host text) AS changed",
    "unregister(name text, instance text)",
    "validations(leaderboard text, submission_id bigint, sweep_id bigint)",
)
#: Every statement of the store, by name.
QUERIES: Final = statements(__file__, *_CALLS)
