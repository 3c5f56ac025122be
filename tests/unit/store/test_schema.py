"""The files of schema `runner`: one for each object, and in which order they are applied."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import CycleError
from pathlib import Path

import pytest

from runner.store import schema

ROOT = Path(schema.__file__).parents[3]
MADE = re.compile(r"^CREATE (?:OR REPLACE )?(FUNCTION|VIEW|TABLE|TYPE|SEQUENCE) (?:runner\.)?(\w+)", re.MULTILINE)
INDEXES = schema.paths("indexes")
TABLES = schema.paths("tables")
FILES = schema.paths("functions", "views")


def test_no_object_is_made_in_two_places() -> None:
    """The database's truth is one file for each, and migrations make no function and no view."""
    objects = Counter(
        pair for path in (*TABLES, *FILES) for pair in set(MADE.findall(path.read_text(encoding="utf-8")))
    )
    assert len(objects) > 100
    assert [pair for pair, count in objects.items() if count > 1] == []
    migrated = {kind for text in schema.migrations().values() for kind, _ in MADE.findall(text)}
    assert migrated.isdisjoint({"FUNCTION", "VIEW"})


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_file_of_a_table_makes_it_alone(path: Path) -> None:
    """It begins with what the table is for."""
    text = path.read_text(encoding="utf-8")
    assert [name for _, name in MADE.findall(text)] == [path.stem]
    assert text.startswith("-- ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_makes_what_its_name_says(path: Path) -> None:
    """It begins with what the object is for, and can be applied again."""
    text = path.read_text(encoding="utf-8")
    assert {name for _, name in MADE.findall(text)} == {path.stem}
    assert {f"{kind.lower()}s" for kind, _ in MADE.findall(text)} == {path.parent.name}
    assert text.startswith("-- ")
    assert text.count("\nCREATE ") == text.count("\nCREATE OR REPLACE ")


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: path.stem)
def test_the_file_of_an_index_builds_it_while_others_write(path: Path) -> None:
    """One statement, which `migrate` runs where the index of the file's name is missing."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert re.findall(r"^CREATE INDEX CONCURRENTLY (\w+) ON (?:runner|leaderboard)\.", text, re.MULTILINE) == [
        path.stem
    ]
    assert schema.indexes()[path.stem] == text
    assert text.count(";") == 1


def test_every_file_is_applied_once() -> None:
    """None is forgotten, whatever folder it lies in: of the core, of a guest, or of what guests share."""
    folders = ("tables", "functions", "views", "indexes")
    assert sorted((*TABLES, *FILES, *INDEXES)) == sorted(
        path for path in (ROOT / "runner").rglob("*.sql") if path.parent.name in folders
    )
    assert sorted(schema.objects()) == sorted(path.read_text(encoding="utf-8") for path in FILES)
    assert sorted(schema.tables()) == sorted(path.read_text(encoding="utf-8") for path in TABLES)


def test_what_others_are_made_from_comes_first() -> None:
    """Outside comments only, and otherwise by name."""
    files = {
        "a": "-- As runner.b and runner.nothing.\nCREATE VIEW runner.a AS SELECT * FROM runner.d, runner.job",
        "b": "CREATE VIEW runner.b AS SELECT * FROM runner.a -- runner.c",
        "c": "CREATE VIEW runner.c AS SELECT runner.c()",
        "d": "CREATE VIEW runner.d AS SELECT 1",
    }
    order = schema.in_order(files)
    assert sorted(order) == ["a", "b", "c", "d"]
    assert order.index("d") < order.index("a") < order.index("b")
    with pytest.raises(CycleError):
        schema.in_order({**files, "d": "SELECT runner.b()"})


def test_a_jobs_state_is_written_where_its_comment_says() -> None:
    """By these functions alone: each change of it is guarded there."""
    table = (ROOT / "runner/store/schema/tables/job.sql").read_text(encoding="utf-8")
    (named,) = re.findall(r"COMMENT ON COLUMN runner\.job\.state IS\s+'Written by ([^']*) alone", table)
    writes = re.compile(r"UPDATE runner\.job\b[^;]*?\bSET\b(?:(?!\bWHERE\b|\bFROM\b)[^;])*?\bstate\s*=", re.DOTALL)
    writers = {path.stem for path in schema.paths("functions") if writes.search(path.read_text(encoding="utf-8"))}
    assert writers == set(re.split(", | and ", named))
