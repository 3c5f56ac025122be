"""What we rely on in schema `leaderboard`, and how a database differs from it. Pure; called by `runner.store.migrate`.

KernelBot may add tables, columns and indexes as it likes. What must not change: the columns we read or write, the keys
our upserts name, and that our inserts need no column we do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_INT: Final = ("integer", "bigint")
_TEXT: Final = ("text", "character varying")
_TIME: Final = ("timestamp with time zone",)

#: Table -> column -> types that work.
EXPECTED_COLUMNS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "leaderboard": {
        "id": _INT,
        "name": _TEXT,
        "deadline": _TIME,
        "task": ("jsonb",),
        "creator_id": _INT,
        "forum_id": _INT,
        "secret_seed": _INT,
        "description": _TEXT,
        "visibility": _TEXT,
    },
    "gpu_type": {"leaderboard_id": _INT, "gpu_type": _TEXT},
    "templates": {"id": _INT, "leaderboard_id": _INT, "lang": _TEXT, "code": _TEXT},
    "user_info": {"id": _TEXT, "user_name": _TEXT, "is_banned": ("boolean",)},
    "code_files": {"id": _INT, "old_code": _TEXT, "code": ("bytea",), "hash": _TEXT},
    "submission": {
        "id": _INT,
        "leaderboard_id": _INT,
        "file_name": _TEXT,
        "user_id": _TEXT,
        "code_id": _INT,
        "submission_time": _TIME,
        "done": ("boolean",),
        "status": _TEXT,
        "mode_category": _TEXT,
    },
    "runs": {
        "id": _INT,
        "submission_id": _INT,
        "start_time": _TIME,
        "end_time": _TIME,
        "mode": _TEXT,
        "secret": ("boolean",),
        "runner": _TEXT,
        "score": ("numeric",),
        "passed": ("boolean",),
        "compilation": ("jsonb",),
        "meta": ("jsonb",),
        "result": ("jsonb",),
        "system_info": ("jsonb",),
    },
    "submission_job_status": {
        "id": _INT,
        "submission_id": _INT,
        "status": _TEXT,
        "error": _TEXT,
        "last_heartbeat": _TIME,
    },
    "rate_limit": {"leaderboard_id": _INT, "mode_category": _TEXT, "max_submissions_per_hour": _INT},
    "leaderboard_invite": {"id": _INT, "user_id": _TEXT},
    "leaderboard_invite_scope": {"invite_id": _INT, "leaderboard_id": _INT},
}

#: Table and columns of the unique keys our statements and foreign keys name.
EXPECTED_KEYS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("leaderboard", ("id",)),
    ("leaderboard", ("name",)),
    ("gpu_type", ("gpu_type", "leaderboard_id")),
    ("user_info", ("id",)),
    ("code_files", ("hash",)),
    ("submission", ("id",)),
    ("runs", ("id",)),
    ("submission_job_status", ("submission_id",)),
)

#: Tables into which we insert rows.
_INSERTED: Final = frozenset(
    {"leaderboard", "gpu_type", "templates", "user_info", "code_files", "submission", "runs", "submission_job_status"}
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column as it is."""

    table: str
    name: str
    data_type: str
    #: NOT NULL, and nothing fills it in.
    required: bool


def differences(columns: Iterable[Column], keys: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """One line per thing that is not as expected; empty if all is well."""
    columns_by_name = {(column.table, column.name): column for column in columns}
    tables = {column.table for column in columns_by_name.values()}
    lines: list[str] = []
    for table, expected in EXPECTED_COLUMNS.items():
        if table not in tables:
            lines.append(f"table leaderboard.{table} is missing")
            continue
        for name, types in expected.items():
            column = columns_by_name.get((table, name))
            if column is None:
                lines.append(f"column leaderboard.{table}.{name} is missing, expected {' or '.join(types)}")
            elif column.data_type not in types:
                lines.append(f"column leaderboard.{table}.{name} is {column.data_type}, expected {' or '.join(types)}")
    lines.extend(
        f"column leaderboard.{column.table}.{column.name} is NOT NULL without a default and unknown to kernel-runner"
        for column in columns_by_name.values()
        if column.required and column.table in _INSERTED and column.name not in EXPECTED_COLUMNS[column.table]
    )
    present = set(keys)
    lines.extend(
        f"table leaderboard.{table} has no unique key on ({', '.join(key)})"
        for table, key in EXPECTED_KEYS
        if table in tables and (table, key) not in present
    )
    return lines
