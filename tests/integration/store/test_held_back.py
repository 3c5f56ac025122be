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


def test_a_claim_does_not_walk_over_jobs_whose_start_is_to_come(bench: Bench, db: Db, meter: Meter) -> None:
    """5,000 of them before the one that may begin."""
    bench.board()
    bench.register("h")
    for number in range(50):
        bench.submit(user_id=f"u{number}", start_at=datetime.now(UTC) + timedelta(hours=1))
    db.execute(
        "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, turn, not_before, ready)"
        " SELECT submission_id, user_id, gpu_type, m, false, turn, not_before, ready"
        " FROM runner.job, unnest(ARRAY['benchmark', 'profile']) m"
    )
    work = {"host": "h", "gpu_types": ["CPU"], "free": [1], "lease_s": 60, "instance": "h"}
    ready = bench.submit(user_id="late")
    cost = meter.cost(QUERIES["claim"].sql, work)
    assert cost.entries["job_ready_idx"] < 10, cost
    assert bench.claim().submission_id == ready
    assert bench.idle()


def test_a_job_comes_in_when_its_start_has(bench: Bench, db: Db) -> None:
    """A claim says that something is due, reclaim lets it in, with the turn of now; a start in the past is none."""
    bench.board()
    start_at = datetime.now(UTC) + timedelta(hours=1)
    later = bench.submit(user_id="early", start_at=start_at)
    for _ in range(3):
        bench.submit(user_id="steady", start_at=datetime.now(UTC) - timedelta(hours=1))
    status = bench.store.submission(later).status
    assert (status.phase, status.retry_at) == ("queued for later", start_at)
    first = bench.claim()
    assert [(depth.gpu_type, depth.jobs) for depth in bench.store.queue_depths()] == [("CPU", 2)]
    db.execute(COME)
    assert bench.overdue()
    assert bench.store.reclaim() == []
    assert bench.store.submission(later).status.phase == "queued"
    assert rows(db, "SELECT ready, not_before FROM runner.job WHERE submission_id = %s", later) == [(True, None)]
    assert not bench.overdue()
    assert first.submission_id != later
    assert bench.claim().submission_id == later


def test_no_job_of_a_paused_board_begins(bench: Bench, db: Db) -> None:
    """Those that wait and those that come stay; those who wait read why; other boards are served; then all go on."""
    bench.board()
    bench.board("other")
    first = bench.submit()
    running = bench.claim()
    waiting = bench.submit()
    assert bench.store.pause_board("identity", reason=" a wrong reference ")
    assert not bench.store.pause_board("identity", reason="a wrong reference")
    after = bench.submit()
    elsewhere = bench.submit(leaderboard="other")
    assert bench.claim().submission_id == elsewhere
    assert bench.idle()
    paused = [bench.store.submission(number).status.paused for number in (waiting, after, elsewhere)]
    assert paused == ["a wrong reference", "a wrong reference", None]
    # What ran and comes back is held too.
    bench.store.release(running, reason="its host stops")
    assert bench.idle()
    db.execute("LISTEN runner_queue")
    assert bench.store.resume_board("identity")
    assert not bench.store.resume_board("identity")
    assert [note.payload for note in notes(db)] == [""]
    assert [bench.claim().submission_id for _ in range(3)] == [first, waiting, after]
    assert bench.store.submission(first).status.paused is None


def test_a_start_that_comes_while_a_board_is_paused_waits_for_it(bench: Bench, db: Db) -> None:
    """And nothing is overdue meanwhile; one that is still to come waits for its time after the pause."""
    bench.board()
    come, ahead = (bench.submit(start_at=datetime.now(UTC) + timedelta(hours=1)) for _ in range(2))
    bench.store.pause_board("identity", reason="x")
    db.execute(COME + " AND submission_id = %s", (come,))
    bench.store.reclaim()
    assert bench.idle()
    assert not bench.overdue()
    bench.store.resume_board("identity")
    assert bench.claim().submission_id == come
    assert bench.idle()
    assert bench.store.submission(ahead).status.phase == "queued for later"


def test_a_pause_needs_a_board_and_a_reason(bench: Bench) -> None:
    """Those who wait read the reason."""
    bench.board()
    with pytest.raises(SubmissionError, match="no reason given"):
        bench.store.pause_board("identity", reason=" ")
    for act in (partial(bench.store.pause_board, reason="x"), bench.store.resume_board):
        with pytest.raises(SubmissionError, match="'nobody' does not exist"):
            act("nobody")
