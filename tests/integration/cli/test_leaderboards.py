"""`leaderboard`: publishing, changing, reading and deleting against a real database."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.conftest import Call, write_task


def test_a_folder_becomes_a_leaderboard_that_is_open_for_a_year(cli: Call, task_folder: Path) -> None:
    """Name and GPU types come from the folder, the deadline is a year away."""
    created = cli("leaderboard", "create", task_folder)
    assert (created.code, created.out) == (0, "")
    assert "echo is open on CPU" in created.err
    (listed,) = cli("leaderboard", "list", "--json").document
    assert (listed["name"], listed["gpus"], listed["submissions"]) == ("echo", ["CPU"], 0)
    left = datetime.fromisoformat(listed["deadline"]) - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)


def test_a_zip_with_deadline_and_gpu_types_becomes_a_leaderboard(cli: Call, task_folder: Path, tmp_path: Path) -> None:
    """--gpu replaces the task's types (aliases resolved, repetitions dropped), --deadline is UTC."""
    archive = shutil.make_archive(str(tmp_path / "sorting"), "zip", task_folder)
    arguments = ("--name", "zipped", "--gpu", "H100", "--gpu", "CPU", "--gpu", "H100", "--deadline", "2031-06-30 18:00")
    assert cli("leaderboard", "create", archive, *arguments).code == 0
    (listed,) = cli("leaderboard", "list", "--json").document
    assert listed["gpus"] == ["CPU", "H100"]
    assert datetime.fromisoformat(listed["deadline"]) == datetime(2031, 6, 30, 18, tzinfo=UTC)
    assert "2031-06-30 18:00:00" in cli("leaderboard", "list").out


@pytest.mark.parametrize(
    ("keys", "arguments", "says"),
    [
        ({"tests": "none"}, (), "tests"),
        ({"ranking_by": "best"}, (), "ranking_by"),
        ({"gpus": None}, (), "no GPU type; give --gpu"),
        ({}, ("--gpu", "H1000"), "did you mean 'H100'"),
        ({}, ("--deadline", "tomorrow"), "expected YYYY-MM-DD"),
        ({}, ("--name", "two words"), "expected no white space"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(
    cli: Call, tmp_path: Path, keys: dict[str, object], arguments: tuple[str, ...], says: str
) -> None:
    """Usage exit code, one message without a traceback, an empty database."""
    said = cli("leaderboard", "create", write_task(tmp_path / "odd", **keys), *arguments)
    assert said.code == 2
    assert said.err.startswith("kernel-runner: ")
    assert says in said.err
    assert "Traceback" not in said.err
    assert cli("leaderboard", "list", "--json").document == []


def test_a_name_is_taken_only_once(cli: Call, board: str, task_folder: Path) -> None:
    """Creating it again points to update."""
    said = cli("leaderboard", "create", task_folder, "--name", board)
    assert said.code == 2
    assert "exists already" in said.err


def test_an_update_keeps_what_is_not_given(cli: Call, board: str, tmp_path: Path) -> None:
    """The task is replaced; deadline and GPU types stay unless asked for."""
    before = cli("leaderboard", "task", board, "--json").document
    changed = write_task(tmp_path / "changed", description="Now different.", gpus=["H100"])
    assert cli("leaderboard", "update", changed, "--name", board).code == 0
    after = cli("leaderboard", "task", board, "--json").document
    assert after["description"] == "Now different."
    assert (after["deadline"], after["gpus"]) == (before["deadline"], ["CPU"])
    assert cli("leaderboard", "update", changed, "--name", board, "--deadline", "2033-01-01", "--gpu", "L4").code == 0
    last = cli("leaderboard", "task", board, "--json").document
    assert last["gpus"] == ["L4"]
    assert last["deadline"].startswith("2033-01-01")


def test_an_update_that_breaks_comparability_needs_force(
    cli: Call, board: str, tmp_path: Path, submission_file: Path
) -> None:
    """Once there are submissions, other benchmarks are refused without --force."""
    assert cli("submit", submission_file, "--leaderboard", board, "--user", "alice").code == 0
    changed = write_task(tmp_path / "changed", benchmarks=[{"n": 99, "seed": 1}])
    refused = cli("leaderboard", "update", changed, "--name", board)
    assert refused.code == 2
    assert "benchmarks" in refused.err
    assert cli("leaderboard", "update", changed, "--name", board, "--force").code == 0
    assert cli("leaderboard", "task", board, "--json").document["task"]["benchmarks"] == [{"n": 99, "seed": 1}]


def test_the_task_and_its_files_can_be_read_but_not_the_secret_seed(cli: Call, board: str) -> None:
    """The page lists the files, a named file is printed as it is, an unknown one names those there are."""
    page = cli("leaderboard", "task", board)
    assert "reference.py" in page.out
    assert "Give back what you get." in page.out
    assert "secret_seed" not in cli("leaderboard", "task", board, "--json").out
    assert cli("leaderboard", "task", board, "reference.py").out.startswith("def generate_input")
    missing = cli("leaderboard", "task", board, "refrence.py")
    assert missing.code == 2
    assert "reference.py" in missing.err


def test_a_template_names_its_leaderboard(cli: Call, board: str, tmp_path: Path) -> None:
    """The printed template can be submitted as it is; any case of the language will do."""
    printed = cli("leaderboard", "template", board, "python")
    assert printed.out.startswith("#!POPCORN leaderboard echo\ndef custom_kernel")
    path = tmp_path / "filled.py"
    path.write_text(printed.out)
    assert cli("submit", path, "--user", "alice").code == 0
    unknown = cli("leaderboard", "template", board, "CUDA")
    assert unknown.code == 2
    assert "it has Python" in unknown.err


def test_a_deadline_in_the_past_closes_a_leaderboard_and_says_so(cli: Call, board: str, task_folder: Path) -> None:
    """An author who mistypes the year must not read that the board is open."""
    created = cli("leaderboard", "create", task_folder, "--name", "late", "--deadline", "2020-01-01")
    assert "is closed: its deadline 2020-01-01 00:00:00 UTC has passed" in created.err
    updated = cli("leaderboard", "update", task_folder, "--name", board, "--deadline", "2020-01-01")
    assert "is closed: its deadline 2020-01-01" in updated.err


def test_a_ranking_on_a_gpu_type_that_the_leaderboard_lacks_is_refused(cli: Call, board: str) -> None:
    """An empty table would say that nobody has submitted yet."""
    said = cli("leaderboard", "show", board, "--gpu", "H100")
    assert (said.code, said.out) == (2, "")
    assert "is not ranked on H100, expected CPU" in said.err
    assert "not known" in cli("leaderboard", "show", board, "--gpu", "X100").err


def test_an_empty_ranking_is_shown_per_gpu_type(cli: Call, board: str) -> None:
    """Nobody is ranked yet, and an unknown board is a usage error."""
    assert "echo on CPU\nno ranked submissions yet" in cli("leaderboard", "show", board).out
    assert cli("leaderboard", "show", board, "--json").document == []
    assert cli("leaderboard", "personal", board, "--user", "alice", "--json").document == []
    said = cli("leaderboard", "show", "nowhere")
    assert said.code == 2
    assert "nowhere" in said.err


def test_a_leaderboard_with_submissions_is_deleted_by_force_only(cli: Call, board: str, submission_file: Path) -> None:
    """Without --force everything stays; with it board and submissions are gone."""
    assert cli("submit", submission_file, "--leaderboard", board, "--user", "alice").code == 0
    refused = cli("leaderboard", "delete", board)
    assert refused.code == 2
    assert "1 submissions" in refused.err
    assert cli("leaderboard", "delete", board, "--force").code == 0
    assert cli("leaderboard", "list", "--json").document == []
    assert cli("leaderboard", "delete", board).code == 2


def test_a_competition_creates_and_then_updates_its_leaderboards(cli: Call, tmp_path: Path) -> None:
    """The first import creates, the second updates; a problem without GPU types is skipped with a note."""
    write_task(tmp_path / "problems" / "first", gpus=["CPU"])
    write_task(tmp_path / "problems" / "second", gpus=[])
    competition = tmp_path / "problems" / "cup.yaml"
    problems = [
        {"directory": "first", "name": "cup-first", "deadline": "2032-02-03", "gpus": ["L4"]},
        {"directory": "second", "name": "cup-second", "deadline": "2032-02-03", "gpus": []},
    ]
    document = {"name": "cup", "description": "A cup.", "deadline": "2032-02-03", "problems": problems}
    competition.write_text(yaml.safe_dump(document))
    first = cli("leaderboard", "import", competition)
    assert first.code == 0
    assert "cup-first: created" in first.err
    assert "cup-second: skipped" in first.err
    (listed,) = cli("leaderboard", "list", "--json").document
    assert (listed["name"], listed["gpus"]) == ("cup-first", ["L4"])
    assert "cup-first: updated" in cli("leaderboard", "import", competition).err
