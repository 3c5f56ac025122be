"""No submission is left undone for ever: other isolation levels are refused, and the reaper finishes what is stuck."""

from __future__ import annotations

import psycopg

from tests.integration.store.conftest import Bench, Db, refused, rows

DAY_S = 86_400.0


def test_a_transaction_with_one_snapshot_is_refused(queue: Bench, db: Db) -> None:
    """It would decide by what was there before it got the lock."""
    queue.submit()
    for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE):
        db.isolation_level = level
        for call in CALLS:
            with refused("KR027", "expected read committed"), db.transaction():
                db.execute(call.encode())


CALLS = (
    "SELECT runner.submit('identity', 'u', 'x.py', 'x', 'test')",
    "SELECT runner.enqueue(1, 'test', NULL)",
    "SELECT runner.cancel(1)",
    "SELECT runner.rerun(submission_id => 1)",
    "SELECT runner.invalidate(submission_id => 1, reason => 'x')",
    "SELECT runner.submit_batch('[]', 'CPU')",
    "SELECT runner.cancel_batch('x')",
    "SELECT runner.delete_submission(1)",
    "SELECT runner.delete_board('identity', true)",
    "SELECT runner.pause_board('identity', 'x')",
    "SELECT runner.resume_board('identity')",
)


def test_the_reaper_finishes_what_has_no_open_job(queue: Bench, db: Db) -> None:
    """With the status that its jobs say; what waits, runs, has no job or is held stays as it is."""
    stuck = [queue.submit(user_id=f"u{n}") for n in range(3)]
    for _ in stuck:
        queue.accept(queue.claim())
    queue.submit(user_id="runs")
    queue.claim()
    queue.submit(user_id="waits")
    db.execute("UPDATE leaderboard.submission SET done = false")
    db.execute("UPDATE leaderboard.submission_job_status SET status = 'running' WHERE status = 'succeeded'")
    db.execute(
        "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time)"
        " SELECT leaderboard_id, file_name, user_id, code_id, submission_time FROM leaderboard.submission LIMIT 1"
    )
    with psycopg.connect(queue.url) as other:
        other.execute("SELECT FROM leaderboard.submission WHERE id = %s FOR UPDATE", (stuck[2],))
        assert queue.store.reap(keep_s=DAY_S).settled == 2
    assert queue.store.reap(keep_s=DAY_S).settled == 1
    assert queue.store.reap(keep_s=DAY_S).settled == 0
    ends = rows(
        db,
        "SELECT s.done, t.status FROM leaderboard.submission s"
        " LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id ORDER BY s.id",
    )
    assert ends == [*[(True, "succeeded")] * 3, (False, "running"), (False, "pending"), (False, None)]
