"""What frontends hear, as docs/frontends.md says it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.base.model import JobState, Json, Verdict
from runner.daemon.outcomes.publisher import EventPublisher
from runner.store import Ended, Reclaimed
from tests.unit.daemon.test_leases import job

ABOUT = {"submission_id": 3, "job_id": 5, "gpu_type": "CPU", "secret": False}


@pytest.mark.parametrize(
    ("publish", "expected"),
    [
        (lambda publisher: publisher.claimed(job(5), host="h"), {"event": "claimed", "host": "h", **ABOUT}),
        (
            lambda publisher: publisher.committed(job(5), Verdict.ACCEPTED, submission_done=True),
            {"event": "done", "verdict": "accepted", "submission_done": True, **ABOUT},
        ),
        (
            lambda publisher: publisher.ended(job(5), Ended(state=JobState.QUEUED, submission_done=False)),
            {"event": "queued", "submission_done": False, **ABOUT},
        ),
        (
            lambda publisher: publisher.ended(job(5), Ended(state=JobState.CANCELLED, submission_done=True)),
            {"event": "cancelled", "submission_done": True, **ABOUT},
        ),
        (
            lambda publisher: publisher.ended(job(5), Ended(state=JobState.DONE, submission_done=True)),
            {"event": "done", "verdict": "internal_error", "submission_done": True, **ABOUT},
        ),
        (
            lambda publisher: publisher.reclaimed(
                Reclaimed(
                    job_id=5,
                    submission_id=3,
                    gpu_type="CPU",
                    secret=False,
                    state=JobState.QUEUED,
                    submission_done=False,
                )
            ),
            {"event": "queued", "submission_done": False, **ABOUT},
        ),
    ],
)
def test_every_event_says_what_happened_to_which_job(
    publish: Callable[[EventPublisher], None], expected: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that can end a submission say whether they did."""
    events: list[Json] = []
    monkeypatch.setattr(EventPublisher, "publish", lambda _, event: events.append(event))
    publish(EventPublisher(lambda purpose: pytest.fail(f"no connection is needed: {purpose}")))
    assert events == [expected]
