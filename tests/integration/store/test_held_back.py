"""Jobs that may not begin yet: before their start time, or of a paused leaderboard. No claim looks at them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from runner.base.errors import SubmissionError
from runner.store.queries import QUERIES
from tests.integration.store.conftest import Bench, Db, notes, rows
from tests.integration.store.meter import Meter

COME = "UPDATE runner.job SET not_before = now() - interval '1 second' WHERE NOT ready"


def test_a_claim_does_not_walk_over_jobs_whose_start_is_to_come(queue: Bench, db: Db, meter: Meter) -> None:
    """5,000 of them before the one that may begin."""
    queue.register("h")
    for number in range(50):
        queue.submit(user_id=f"u{number}", start_at=datetime.now(UTC) + timedelta(hours=1))
    db.execute(
        "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, turn, not_before, ready)"
        " SELECT submission_id, user_id, gpu_type, m, false, turn, not_before, ready"
        " FROM runner.job, unnest(ARRAY['benchmark', 'profile']) m"
    )
    work = {"host": "h", "gpu_types": ["CPU"], "free": [1], "lease_s": 60, "instance": "h"}
    ready = queue.submit(user_id="late")
    cost = meter.cost(QUERIES["claim"].sql, work)
    assert cost.entries["job_ready_idx"] < 10, cost
    assert queue.claim().submission_id == ready
    assert queue.idle()


def test_a_job_comes_in_when_its_start_has(queue: Bench, db: Db) -> None:
    """A claim says that something is due, reclaim lets it in, with the turn of now; a start in the past is none."""
    start_at = datetime.now(UTC) + timedelta(hours=1)
    later = queue.submit(user_id="early", start_at=start_at)
    for _ in range(3):
        queue.submit(user_id="steady", start_at=datetime.now(UTC) - timedelta(hours=1))
    status = queue.store.submission(later).status
    assert (status.phase, status.retry_at) == ("queued for later", start_at)
    first = queue.claim()
    assert [(depth.gpu_type, depth.jobs) for depth in queue.store.queue_depths()] == [("CPU", 2)]
    db.execute(COME)
    assert queue.overdue()
    assert queue.store.reclaim() == []
    assert queue.store.submission(later).status.phase == "queued"
    assert rows(db, "SELECT ready FROM runner.job WHERE submission_id = %s", later) == [(True,)]
    assert not queue.overdue()
    assert first.submission_id != later
    assert queue.claim().submission_id == later


def test_no_job_of_a_paused_board_begins(queue: Bench, db: Db) -> None:
    """Those that wait and those that come stay; those who wait read why; other boards are served; then all go on."""
    queue.board("other")
    first = queue.submit()
    running = queue.claim()
    waiting = queue.submit()
    assert queue.store.pause_board("identity", reason=" a wrong reference ")
    assert not queue.store.pause_board("identity", reason="a wrong reference")
    after = queue.submit()
    elsewhere = queue.submit(leaderboard="other")
    assert queue.claim().submission_id == elsewhere
    assert queue.idle()
    paused = [queue.store.submission(number).status.paused for number in (waiting, after, elsewhere)]
    assert paused == ["a wrong reference", "a wrong reference", None]
    # What ran and comes back is held too.
    queue.store.release(running, reason="its host stops")
    assert queue.idle()
    db.execute("LISTEN runner_queue")
    assert queue.store.resume_board("identity")
    assert not queue.store.resume_board("identity")
    assert [note.payload for note in notes(db)] == [""]
    assert [queue.claim().submission_id for _ in range(3)] == [first, waiting, after]
    assert queue.store.submission(first).status.paused is None


def test_a_start_that_comes_while_a_board_is_paused_waits_for_it(queue: Bench, db: Db) -> None:
    """And nothing is overdue meanwhile; one that is still to come waits for its time after the pause."""
    come, ahead = (queue.submit(start_at=datetime.now(UTC) + timedelta(hours=1)) for _ in range(2))
    queue.store.pause_board("identity", reason="x")
    db.execute(COME + " AND submission_id = %s", (come,))
    queue.store.reclaim()
    assert queue.idle()
    assert not queue.overdue()
    queue.store.resume_board("identity")
    assert queue.claim().submission_id == come
    assert queue.idle()
    assert queue.store.submission(ahead).status.phase == "queued for later"


def test_a_pause_needs_a_board_and_a_reason(queue: Bench) -> None:
    """Those who wait read the reason."""
    with pytest.raises(SubmissionError, match="no reason given"):
        queue.store.pause_board("identity", reason=" ")
    for act in (partial(queue.store.pause_board, reason="x"), queue.store.resume_board):
        with pytest.raises(SubmissionError, match="'nobody' does not exist"):
            act("nobody")


@pytest.mark.parametrize("since", ["its start", "the end of a pause after a failure"])
def test_a_job_waits_from_when_it_might_begin(queue: Bench, db: Db, since: str) -> None:
    """By the metric of the queue, and by that of its claim if it is the first; not from its submission."""
    start = since == "its start"
    queue.submit(start_at=datetime.now(UTC) + timedelta(hours=1) if start else None)
    if not start:
        queue.store.fail(queue.claim(), error="a broken host", report={}, slot="0")
    db.execute("UPDATE runner.job SET created_at = created_at - interval '1 day'")
    assert [depth.oldest_s for depth in queue.store.queue_depths()] == ([] if start else [0])
    db.execute("UPDATE runner.job SET not_before = now() - interval '1 second'")
    queue.store.reclaim()
    assert [1 <= depth.oldest_s < 3600 for depth in queue.store.queue_depths()] == [True]
    job = queue.claim()
    assert (timedelta(seconds=1) <= job.started_at - job.created_at < timedelta(hours=1)) == start
    queue.store.release(job, reason="enough")
    assert [1 <= depth.oldest_s < 3600 for depth in queue.store.queue_depths()] == [True]


def test_a_job_whose_start_has_come_is_let_in_when_its_board_is_resumed(queue: Bench, db: Db) -> None:
    """At once, not when the next host looks for jobs whose start has come."""
    queue.submit(start_at=datetime.now(UTC) + timedelta(hours=1))
    db.execute("UPDATE runner.job SET not_before = now() - interval '1 second'")
    queue.store.reclaim()
    db.execute("SELECT runner.pause_board('identity', 'the reference is wrong')")
    assert queue.idle()
    assert not queue.overdue()
    db.execute("SELECT runner.resume_board('identity')")
    assert queue.claim().attempt == 1


def test_a_pause_after_a_failure_outlasts_that_of_its_board(queue: Bench, db: Db) -> None:
    """The job is held back while either lasts."""
    queue.submit()
    job = queue.claim()
    db.execute("SELECT runner.pause_board('identity', 'the reference is wrong')")
    queue.store.fail(job, error="a broken host", report={}, slot="0")
    db.execute("SELECT runner.resume_board('identity')")
    assert queue.idle()
    db.execute("UPDATE runner.job SET not_before = now() - interval '1 second'")
    queue.store.reclaim()
    assert queue.claim().key == (job.id, job.attempt + 1)
