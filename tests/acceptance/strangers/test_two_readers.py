"""Directives of templates, as the command line and the database read them; and paths in a configuration."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import psycopg
import pytest

from runner.cli.install import _with_eval_python
from runner.cli.installation import shipped
from runner.extras.boards.directive import with_directive

_ENDS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")
_DIRECTIVES = (
    "#!POPCORN leaderboard sort",
    "#!POPCORN Leaderboard sort",
    "//!POPCORN\tleaderboard  sort",
    "#!popcorn leaderboard sort",
    "#!POPCORN\x1cleaderboard sort",
)
_BEFORE = ("", "# a comment", "x = 1", '"""', "#!POPCORN gpus CPU", " ")


@pytest.mark.parametrize("before", _BEFORE)
def test_a_template_names_its_leaderboard_once_as_the_database_reads_it(database_url: str, before: str) -> None:
    """Wherever the directive stands, however it is written, and whatever ends the line above it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for end, directive in itertools.product(_ENDS, _DIRECTIVES):
            printed = with_directive(f"{before}{end if before else ''}{directive}\nx = 2\n", "sort", lang="py")
            row = connection.execute("SELECT leaderboard FROM runner.parse_directives(%s)", [printed]).fetchone()
            assert row is not None
            assert row[0] == "sort", printed


@pytest.mark.parametrize("name", ['a "b"', "back\\slash", "a b", "%s", "it's", "\\1", "ü", "#", "a\tb", "\x7f", "日本"])
def test_a_path_in_a_configuration_is_read_back(name: str) -> None:
    """As it was given to `install`."""
    path = Path("/opt") / name / "bin" / "python"
    config = _with_eval_python(shipped("config.toml").decode("utf-8"), path)
    assert tomllib.loads(config)["eval_python"] == str(path)
