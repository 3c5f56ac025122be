"""Every command in locales that know no UTF-8, in a folder and with names that are not ASCII."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.integration.cli.conftest import write_task

ROOT = Path(__file__).resolve().parents[4]
LOCALES = {
    "C, UTF-8 mode off": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX, UTF-8 mode off": {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    "C": {"LC_ALL": "C"},
    "a locale that is not there": {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "streams of ASCII": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii:strict"},
    "streams of Latin-1": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"},
}
WORST = "C, UTF-8 mode off"
BOARD, USER, NAME = "σ²-größe", "şükrü€", "Şükrü € 漢字"
PIECE = "# Größe σ² 漢字\ndef custom_kernel(data):\n    return data\n"


def run(folder: Path, url: str, locale: str, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    """A command as a process of its own; neither a traceback nor anything but a sentence goes to stderr."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    said = subprocess.run(
        [sys.executable, "-m", "runner.cli", *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "DATABASE_URL": url, **LOCALES[locale]},
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in said.stderr, (words, said.stderr.decode(errors="replace"))
    assert b"Error" not in said.stderr.splitlines()[-1:], said.stderr
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task and a submission in folders that are not ASCII."""
    home = tmp_path / "Größe 漢字"
    task = write_task(home / "aufgäbe")
    (task / "template.py").write_text(PIECE, encoding="utf-8")
    (home / "naïve σ².py").write_text(PIECE, encoding="utf-8")
    return home


COMMANDS = (
    ("leaderboard", "list"),
    ("leaderboard", "show", BOARD),
    ("leaderboard", "task", BOARD),
    ("leaderboard", "task", BOARD, "reference.py"),
    ("leaderboard", "personal", BOARD, "--user", USER),
    ("status",),
    ("status", "1"),
    ("user", "token", "größe", "--name", NAME),
    ("user", "list"),
    ("host", "list"),
    ("gpu", "list"),
    ("failed", "--leaderboard", BOARD),
    ("rerun", "--leaderboard", BOARD, "--dry-run"),
    ("data", "export", "ausführ", "--private", "--leaderboard", BOARD, "--name", "greek"),
    ("data", "check", "--leaderboard", BOARD),
    ("leaderboard", "pause", BOARD, "--reason", "weil's größer ist"),
    ("cancel", "1"),
    ("leaderboard", "update", "aufgäbe", "--name", BOARD),
    ("migrate",),
    ("--help",),
)


@pytest.mark.parametrize(
    ("locale", "commands"),
    [
        pytest.param(WORST, COMMANDS[:1], id="worst"),
        *(pytest.param(locale, COMMANDS, id=locale, marks=pytest.mark.nightly) for locale in LOCALES),
    ],
)
def test_names_are_kept_by_every_command(
    folder: Path, database_url: str, locale: str, commands: tuple[tuple[str, ...], ...]
) -> None:
    """As they were typed, in the database and in JSON; files that are printed are UTF-8."""

    def said(*words: str) -> bytes:
        answer = run(folder, database_url, locale, *words)
        assert answer.returncode == 0, (words, answer.stderr.decode(errors="replace"))
        return answer.stdout

    said("leaderboard", "create", "aufgäbe", "--name", BOARD)
    said("submit", "naïve σ².py", "--leaderboard", BOARD, "--user", USER, "--user-name", NAME)
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT l.name, s.user_id, u.user_name, s.file_name, convert_from(c.code, 'UTF8')"
            " FROM leaderboard.submission s JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id"
            " JOIN leaderboard.user_info u ON u.id = s.user_id JOIN leaderboard.code_files c ON c.id = s.code_id"
        ).fetchone()
    assert row == (BOARD, USER, NAME, "naïve σ².py", PIECE)
    assert json.loads(said("status", "1", "--json"))["user_name"] == NAME
    assert json.loads(said("leaderboard", "list", "--json"))[0]["name"] == BOARD
    assert PIECE.encode() in said("leaderboard", "template", BOARD, "Python")
    for command in commands:
        said(*command)
    assert (folder / "ausführ" / "leaderboards.parquet").exists() is (commands == COMMANDS)


@pytest.mark.parametrize("locale", [WORST, pytest.param("streams of Latin-1", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "words",
    [
        ("submit", "naïve σ².py", "--leaderboard", "x", "--user", b"\xff"),
        *(
            pytest.param(words, marks=pytest.mark.nightly)
            for words in (
                ("submit", b"\xff.py", "--leaderboard", "x"),
                ("submit", "naïve σ².py", "--leaderboard", b"gr\xf6\xdfe"),
                ("task", "check", b"\xe9"),
                ("leaderboard", "show", b"\x80"),
            )
        ),
    ],
)
def test_what_is_not_utf8_is_refused_with_a_sentence(
    folder: Path, database_url: str, locale: str, words: tuple[str | bytes, ...]
) -> None:
    """It is no name that could be shown again."""
    answer = run(folder, database_url, locale, *words)
    assert answer.returncode == 2
    assert b"is not UTF-8; type or rename it in UTF-8" in answer.stderr
