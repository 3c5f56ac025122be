"""`logs ID`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from runner.store import Store
from tests.integration.cli.conftest import Call


@pytest.fixture
def failed(cli: Call, board: str, submission_file: Path, store: Store) -> int:
    """A submission whose first attempt failed through our fault."""
    said = cli("submit", submission_file, "--leaderboard", board, "--mode", "test", "--user", "alice")
    assert said.code == 0
    (job,) = store.claim(host="node1", slots={"CPU": 1}, lease_s=600.0, instance="i").jobs
    store.fail(job, error="the engine went away", report=None, slot="cpu0")
    return int(said.out)


def test_programs_get_a_line_per_step(cli: Call, failed: int) -> None:
    """JSON with time, step, job and attempt."""
    steps = [json.loads(line) for line in cli("logs", failed, "--json").out.splitlines()]
    assert [step["what"] for step in steps][:2] == ["submitted", "job 1 queued"]
    assert set(steps[0]) == {"at", "what", "job_id", "attempt", "host", "detail"}


def test_an_operators_role_suffices(call: Call, failed: int, database_url: str) -> None:
    """No right to anybody's code is needed."""
    told = call("logs", failed, database=make_conninfo(database_url, options="-c role=runner_operator"))
    assert (told.code, "submitted" in told.out) == (0, True), told.err


def test_an_unknown_number_is_usage(cli: Call) -> None:
    """A submission that is not there."""
    said = cli("logs", 4711)
    assert said.code == 2
    assert "submission 4711 does not exist" in said.err
