"""Whose lines of a journal are a submission's, and how its story reads."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from runner.cli.logs import messages, of_submission, story
from runner.model import JobState, Mode, Verdict
from runner.store import EventLine
from tests.unit.cli import samples


def entry(**line: Any) -> bytes:  # noqa: ANN401 - any field
    """An entry of the journal with a daemon's line."""
    return json.dumps({"MESSAGE": json.dumps(line), "__CURSOR": "x"}).encode()


def test_lines_of_a_daemon_are_found_among_others() -> None:
    """Text that is no JSON, JSON that is no line, bytes that the journal gives as numbers, an entry cut off."""
    found = list(
        messages(
            [
                entry(event="starting"),
                json.dumps({"MESSAGE": "Started kernel-runner."}).encode(),
                json.dumps({"MESSAGE": "[1, 2]"}).encode(),
                json.dumps({"MESSAGE": None}).encode(),
                json.dumps({"MESSAGE": list(b'{"event": "odd \xff"}')}).encode(),
                b'{"MESSAGE": "{',
            ]
        )
    )
    assert [line["event"] for line in found] == ["starting", "odd \N{REPLACEMENT CHARACTER}"]


def test_lines_that_name_only_the_job_belong_to_its_submission() -> None:
    """As the heartbeat's, which knows no submission; another one's do not, whatever number they share."""
    lines: list[dict[str, Any]] = [
        {"event": "ready"},
        {"event": "job_claimed", "submission": 7, "job": 70},
        {"event": "job_claimed", "submission": 70, "job": 7},
        {"event": "lease_lost", "job": 70},
        {"event": "lease_lost", "job": 7},
        {"event": "job_evaluated", "submission": 7, "job": 71},
    ]
    assert list(of_submission(lines, 7)) == [lines[1], lines[3], lines[5]]


def test_a_story_is_told_in_order() -> None:
    """Queued, claimed, failed, ended; why a secret run failed only to administrators."""
    later = samples.NOW + timedelta(seconds=9)
    job = samples.job(job_id=10, mode=Mode.LEADERBOARD, verdict=Verdict.WRONG_ANSWER)
    secret = samples.job(job_id=11, mode=Mode.LEADERBOARD, secret=True, verdict=Verdict.WRONG_ANSWER)
    view = samples.submission(job, secret)
    event = EventLine(
        id=1,
        at=later,
        kind="failed",
        job_id=11,
        attempt=1,
        host="node1",
        detail={"error": samples.SECRET_MARK, "slot": "a"},
    )
    lines = story(view, [event], admin=False)
    assert lines[0].what == "submitted"
    assert {line.what for line in lines} >= {"job 10 queued", "job 11 queued", "job 11 failed"}
    assert lines[-1].details == "attempt 1 on node1, slot a"
    assert not any(samples.SECRET_MARK in line.details for line in lines)
    told = story(view, [event], admin=True)
    assert any(samples.SECRET_MARK in line.details for line in told)
    assert [line.at for line in told] == sorted(line.at for line in told)
    assert JobState.DONE is view.state
