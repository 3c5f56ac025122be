"""What frontends hear, as docs/frontends.md says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.base.model import JobState, Json, Verdict
from runner.daemon.outcomes.publisher import EventPublisher
from runner.store import Ended, Reclaimed
from tests.unit.daemon.test_leases import job

ABOUT: dict[str, Any] = {"submission_id": 3, "job_id": 5, "gpu_type": "CPU", "secret": False}
QUEUED, CANCELLED, DONE = (
    Ended(state=state, submission_done=state is not JobState.QUEUED)
    for state in (JobState.QUEUED, JobState.CANCELLED, JobState.DONE)
)


@pytest.mark.parametrize(
    ("publish", "event", "says"),
    [
        (lambda to: to.claimed(job(5), host="h"), "claimed", {"host": "h"}),
        (
            lambda to: to.committed(job(5), Verdict.ACCEPTED, submission_done=True),
            "done",
            {"verdict": "accepted", "submission_done": True},
        ),
        (lambda to: to.ended(job(5), QUEUED), "queued", {"submission_done": False}),
        (lambda to: to.ended(job(5), CANCELLED), "cancelled", {"submission_done": True}),
        (lambda to: to.ended(job(5), DONE), "done", {"verdict": "internal_error", "submission_done": True}),
        (lambda to: to.reclaimed(Reclaimed(**ABOUT, **vars(QUEUED))), "queued", {"submission_done": False}),
    ],
)
def test_every_event_says_what_happened_to_which_job(
    publish: Callable[[EventPublisher], None], event: str, says: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that can end a submission say whether they did."""
    events: list[Json] = []
    monkeypatch.setattr(EventPublisher, "publish", lambda _, event: events.append(event))
    publish(EventPublisher(lambda purpose: pytest.fail(f"no connection is needed: {purpose}")))
    assert events == [{"event": event, **says, **ABOUT}]
