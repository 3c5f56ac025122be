"""How the history of a submission reads."""

from __future__ import annotations

from datetime import timedelta

from runner.base.model import JobState, Mode, Verdict
from runner.cli.logs import story
from runner.store import EventLine
from tests.unit.cli import samples


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
