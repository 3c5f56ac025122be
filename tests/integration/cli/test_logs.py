"""`logs ID` from the database, and from a journal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runner.store import Store
from tests.integration.cli.conftest import Call


@pytest.fixture
def failed(cli: Call, board: str, submission_file: Path, store: Store) -> int:
    """A submission whose first attempt failed through our fault."""
    said = cli("submit", submission_file, "--leaderboard", board, "--mode", "test", "--user", "alice")
    assert said.code == 0
    (job,) = store.claim(host="node1", slots={"CPU": 1}, lease_s=600.0, at_most=None, instance="i").jobs
    store.fail(job, error="the engine went away", report=None, slot="cpu0")
    return int(said.out)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: int) -> Path:
    """A `journalctl` that has a daemon's lines about it, and says what it was asked."""
    lines = [
        {"event": "ready", "level": "info", "timestamp": "2030-01-02T03:04:00Z"},
        {
            "event": "job_claimed",
            "level": "info",
            "timestamp": "2030-01-02T03:04:05Z",
            "submission": failed,
            "job": 1,
            "attempt": 1,
            "user": "alice",
        },
        {"event": "lease_lost", "level": "warning", "timestamp": "2030-01-02T03:04:06Z", "job": 1},
    ]
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    entries = "".join(json.dumps({"MESSAGE": json.dumps(line)}) + "\n" for line in lines)
    (tmp_path / "entries").write_text(entries, encoding="utf-8")
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncat {tmp_path}/entries\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def test_the_database_tells_the_story(cli: Call, failed: int) -> None:
    """When it was submitted, queued and claimed, and why the attempt ended."""
    said = cli("logs", failed, "--database")
    assert said.code == 0
    lines = [line[21:] for line in said.out.splitlines()]
    assert lines[0] == "submitted                 by alice to echo, mine.py"
    assert lines[1] == "job 1 queued              CPU, test"
    assert any("the engine went away" in line and "attempt 1" in line for line in lines[2:])


def test_programs_get_a_line_per_step(cli: Call, failed: int) -> None:
    """JSON with time, step, job and attempt."""
    steps = [json.loads(line) for line in cli("logs", failed, "--database", "--json").out.splitlines()]
    assert [step["what"] for step in steps][:2] == ["submitted", "job 1 queued"]
    assert set(steps[0]) == {"at", "what", "job_id", "attempt", "host", "detail"}


def test_the_journal_is_looked_at_first(cli: Call, failed: int, journal: Path) -> None:
    """The daemon's own lines, with their fields, and those that name only the job; nothing else of the host."""
    said = cli("logs", failed)
    assert said.code == 0
    assert said.out.splitlines() == [
        "2030-01-02 03:04:05  job 1.1 job_claimed       user alice",
        "2030-01-02 03:04:06  lease_lost",
    ]
    asked = (journal / "asked").read_text(encoding="utf-8")
    assert asked == "--unit kernel-runner --output=json --output-fields=MESSAGE --no-pager --quiet\n"
    assert json.loads(cli("logs", failed, "--unit", "other", "--json").out.splitlines()[0])["user"] == "alice"
    assert "--unit other" in (journal / "asked").read_text(encoding="utf-8")


def test_without_a_journal_the_database_is_asked(cli: Call, failed: int, journal: Path) -> None:
    """With a word about it; --journal insists and says what is missing."""
    (journal / "entries").write_text("", encoding="utf-8")
    said = cli("logs", failed)
    assert said.code == 0
    assert "submitted" in said.out
    assert "this is what the database knows" in said.err
    refused = cli("logs", failed, "--journal")
    assert refused.code == 2
    assert f"no line of unit 'kernel-runner' about submission {failed}" in refused.err


def test_contradictions_and_unknown_numbers_are_usage(cli: Call, failed: int) -> None:
    """Two sources at once; a submission that is not there."""
    assert "exclude each other" in cli("logs", failed, "--journal", "--database").err
    said = cli("logs", 4711, "--database")
    assert said.code == 2
    assert "submission 4711 does not exist" in said.err
