"""Schema `runner` as it is now, one file per object; README.md beside this file says how to change it.

`tables` makes a new database, `migrations` bring one to it that an earlier release made. Every `migrate` applies all
functions and views. The indexes are built while others write, after the migration. What only guests use lies with them,
in folders of the same kind, which are found by their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

#: The version of a database that was made by `tables` before there was any migration.
BASELINE: Final = "0001_baseline"
#: Where the numbered migrations are.
MIGRATIONS: Final = Path(__file__).parent / "migrations"
#: The core's folder, that of what several guests use, and each guest's own.
FOLDERS: Final = (Path(__file__).parent, *sorted(Path(__file__).parents[2].glob("extras/**/schema")))
_COMMENT: Final = re.compile(r"--.*")
_NAME: Final = re.compile(r"\brunner\.(\w+)")


def migrations() -> Mapping[str, str]:
    """The SQL of each version after the baseline by its name, oldest first."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(MIGRATIONS.glob("*.sql"))}


def versions() -> Sequence[str]:
    """The names of all versions that this release knows, oldest first."""
    return (BASELINE, *migrations())


def leaderboard_sql() -> str:
    """SQL that makes KernelBot's tables where none of them is there."""
    return _text("leaderboard")


def validations_sql() -> str:
    """SQL that applies KernelBot's thirtieth migration where only that is missing; part of every `migrate`."""
    return _text("validations")


def tables() -> Sequence[str]:
    """What makes the tables, types and sequences of a database that has none, in order."""
    files = _files("tables")
    return tuple(files[name] for name in in_order(files))


def objects() -> Sequence[str]:
    """What makes each function and view: first what others are made from, then those others."""
    files = {**_files("functions"), **_files("views")}
    return tuple(files[name] for name in in_order(files))


def indexes() -> Mapping[str, str]:
    """The statement that builds each index of `indexes`, by the index's name."""
    return _files("indexes")


def paths(*kinds: str) -> Sequence[Path]:
    """The file of each object of these kinds, such as `tables`, wherever it lies."""
    return sorted(path for folder in FOLDERS for kind in kinds for path in folder.glob(f"{kind}/*.sql"))


def names() -> Sequence[str]:
    """The names of all tables, types, functions and views."""
    return tuple(path.stem for path in paths("tables", "functions", "views"))


def in_order(files: Mapping[str, str]) -> Sequence[str]:
    """The names of the files, each after those that it mentions outside comments; otherwise by name.

    Raises:
        graphlib.CycleError: two files mention each other.
    """
    mentions = {
        name: sorted(set(_NAME.findall(_COMMENT.sub("", files[name]))) & files.keys() - {name})
        for name in sorted(files)
    }
    return tuple(TopologicalSorter(mentions).static_order())


def rights_sql() -> str:
    """SQL that takes from PUBLIC the right to call our functions; part of every `migrate`."""
    return _text("rights")


def roles_sql() -> str:
    """SQL that makes the roles and gives them their rights.

    For databases where `migrate` may not create roles: an administrator runs it by hand, after `migrate`.
    """
    return "\n".join(path.read_text(encoding="utf-8") for folder in FOLDERS for path in folder.glob("roles.sql"))


def _text(name: str) -> str:
    return (FOLDERS[0] / f"{name}.sql").read_text(encoding="utf-8")


def _files(kind: str) -> Mapping[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in paths(kind)}
