"""The files of functions and views: one for each, and in which order they are applied."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import CycleError
from pathlib import Path

import pytest

from runner.store import schema

STORE = Path(schema.__file__).parents[1]
MADE = re.compile(r"^CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE|VIEW|TRIGGER) (?:runner\.)?(\w+)", re.MULTILINE)
INDEXES = sorted((STORE / "schema" / "indexes").glob("*.sql"))
FILES = sorted(path for path in (STORE / "schema").rglob("*.sql") if path.parent.name not in ("schema", "indexes"))


def test_no_function_or_view_is_made_in_two_places() -> None:
    """All SQL of the store taken together: migrations make none, and each is made by one file."""
    made = Counter(
        (path, *found) for path in STORE.rglob("*.sql") for found in set(MADE.findall(path.read_text(encoding="utf-8")))
    )
    places = Counter((kind, name) for _, kind, name in made)
    assert len(places) > 40
    assert [found for found, count in places.items() if count > 1] == []
    assert [path for path, _, _ in made if path.is_relative_to(STORE / "migrations")] == []


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
    """None is forgotten, whatever folder it lies in."""
    assert sorted(schema.objects()) == sorted(path.read_text(encoding="utf-8") for path in FILES)


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
