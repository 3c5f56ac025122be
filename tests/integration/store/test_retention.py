"""What the reaper forgets, keeps and finishes, in batches beside others; no transaction may keep one snapshot."""

from __future__ import annotations

import psycopg
import pytest

from runner.base.model import Artifact, Verdict
from runner.store import Reaped
from tests.integration.store.conftest import Bench, Db, count, refused, result, rows, run_record, value

DAY_S = 86_400.0
NOTHING = Reaped(artifacts=0, stale_results=0, events=0, hosts=0, shares=0)


def names(db: Db, table: str, column: str) -> list[object]:
    """The values of a column, in order."""
    return [it for (it,) in rows(db, f"SELECT {column} FROM runner.{table} ORDER BY 1")]  # noqa: S608 - ours


def drained(db: Db, *days: int) -> None:
    """An event for each of these numbers of days ago, of a host with that name."""
    query = "INSERT INTO runner.event (kind, host, at) SELECT 'drained', d, now() - d * interval '1 day'"
    db.execute(f"{query} FROM unnest(%s) d".encode(), (list(days),))


def advance_clock(db: Db, turn: int) -> None:
    """Let the class of CPU jobs be at this turn."""
    db.execute(
        "INSERT INTO runner.clock (gpu_type, priority, turn) VALUES ('CPU', 0, %s)"
        " ON CONFLICT (gpu_type, priority, seq) DO UPDATE SET turn = excluded.turn",
        (turn,),
    )


def artifacts(bench: Bench, *sizes: int) -> None:
    """A finished job with files of these sizes."""
    bench.board()
    bench.submit()
    kept = tuple(Artifact(name=f"{n:05}", media_type="x", data=b"x" * size) for n, size in enumerate(sizes))
    bench.store.complete(bench.claim(), result(Verdict.ACCEPTED, run_record(), artifacts=kept))


def test_artifacts_go_when_their_time_is_over(bench: Bench, db: Db) -> None:
    """Their own `expires_at` counts, not the age of everything else; of a young database nothing is due."""
    artifacts(bench, 1, 1)
    bench.submit()
    bench.register("node1")
    assert bench.store.reap(keep_s=DAY_S) == NOTHING
    db.execute("UPDATE runner.artifact SET expires_at = now() WHERE name = '00000'")
    assert bench.store.reap(keep_s=365 * DAY_S).artifacts == 1
    assert names(db, "artifact", "name") == ["00001"]


def test_evidence_and_events_go_by_their_age(queue: Bench, db: Db) -> None:
    """Older than what is to be kept goes, younger stays."""
    queue.submit()
    job = queue.claim()
    db.execute(
        "INSERT INTO runner.stale_result (job_id, attempt, result, received_at)"
        " SELECT %s, d, '{}', now() - d * interval '1 day' FROM generate_series(1, 4) d",
        (job.id,),
    )
    drained(db, *range(1, 5))
    reaped = queue.store.reap(keep_s=2.5 * DAY_S)
    assert (reaped.stale_results, reaped.events) == (2, 2)
    assert names(db, "stale_result", "attempt") == [1, 2]
    assert names(db, "event", "host") == ["1", "2"]


def test_hosts_go_when_they_have_been_gone_for_a_week(bench: Bench, db: Db) -> None:
    """Stopped or silent; but not one that is draining, or it would come back serving, and not one that holds a job."""
    for name in ("alive", "stopped", "silent", "draining", "holding", "lately"):
        bench.register(name)
    bench.store.unregister_host("stopped", instance="stopped")
    bench.store.unregister_host("lately", instance="lately")
    bench.store.drain("draining")
    bench.board()
    bench.submit()
    bench.claim(host="holding")
    db.execute("UPDATE runner.host SET last_seen = now() - interval '8 days' WHERE name <> 'alive'")
    db.execute("UPDATE runner.host SET stopped_at = now() - interval '8 days' WHERE name = 'stopped'")
    assert bench.store.reap(keep_s=DAY_S).hosts == 2
    assert names(db, "host", "name") == ["alive", "draining", "holding", "lately"]


def test_shares_go_once_their_clock_has_passed(queue: Bench, db: Db) -> None:
    """A share behind its clock says nothing; one ahead of it keeps a user from starting over."""
    queue.submit(user_id="past")
    queue.submit(user_id="ahead")
    advance_clock(db, 5)
    db.execute("UPDATE runner.share SET next_turn = CASE user_id WHEN 'past' THEN 5 ELSE 6 END")
    assert queue.store.reap(keep_s=DAY_S).shares == 1
    assert names(db, "share", "user_id") == ["ahead"]
    queue.submit(user_id="past")
    assert value(db, "SELECT turn FROM runner.job WHERE user_id = 'past' ORDER BY id DESC LIMIT 1") == 7


def test_idempotency_keys_go_after_thirty_days(queue: Bench, db: Db) -> None:
    """Then the same key makes a new submission; a younger one does not."""
    old, young = queue.submit(idempotency_key="old"), queue.submit(idempotency_key="young")
    db.execute("UPDATE runner.idempotency SET created_at = now() - interval '29 days'")
    queue.store.reap(keep_s=DAY_S)
    assert queue.submit(idempotency_key="old") == old
    db.execute("UPDATE runner.idempotency SET created_at = now() - interval '31 days' WHERE key = 'old'")
    queue.store.reap(keep_s=DAY_S)
    assert queue.submit(idempotency_key="old") != old
    assert queue.submit(idempotency_key="young") == young


def test_a_backlog_goes_in_batches(bench: Bench, db: Db) -> None:
    """Each call is one, a transaction of its own that never takes long."""
    drained(db, *range(5, 10))
    assert [bench.store.reap(keep_s=DAY_S, limit=2).events for _ in range(4)] == [2, 2, 1, 0]
    bench.board()
    for number in range(5):
        bench.submit(idempotency_key=str(number))
    db.execute("UPDATE runner.idempotency SET created_at = now() - interval '31 days'")
    assert [bench.store.reap(keep_s=DAY_S, limit=2).keys for _ in range(4)] == [2, 2, 1, 0]


def test_one_reaper_works_at_a_time_and_no_login_can_stop_it(bench: Bench, db: Db) -> None:
    """A second one returns at once with nothing done, instead of waiting or deleting twice.

    An advisory lock, which every login may take, stops nothing; the row that stops it no other role may lock.
    """
    drained(db, 9)
    with db.transaction():
        assert value(db, "SELECT events FROM runner.reap(keep => '1 day', at_most => 1)") == 1
        assert bench.store.reap(keep_s=DAY_S) == NOTHING
    assert bench.store.reap(keep_s=DAY_S) == NOTHING
    drained(db, 9)
    with psycopg.connect(bench.url) as other:
        other.execute("SELECT pg_advisory_lock(7016325910443211)")
        assert bench.store.reap(keep_s=DAY_S).events == 1
        other.execute("SET ROLE runner_operator")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("SELECT FROM runner.applied FOR SHARE")


def test_what_is_being_written_right_now_delays_no_cleanup(queue: Bench, db: Db) -> None:
    """A share whose user is submitting, and a host that is being drained, are passed over."""
    queue.submit()
    queue.register("gone")
    db.execute("UPDATE runner.host SET last_seen = now() - interval '8 days'")
    advance_clock(db, 9)
    with db.transaction():
        db.execute("SELECT 1 FROM runner.share FOR UPDATE")
        db.execute("SELECT 1 FROM runner.host FOR UPDATE")
        assert queue.store.reap(keep_s=DAY_S) == NOTHING
    reaped = queue.store.reap(keep_s=DAY_S)
    assert (reaped.hosts, reaped.shares) == (1, 1)


def test_reports_go_by_outcome(queue: Bench, db: Db) -> None:
    """That of an accepted job stays; those of others go with age, and so does what was replaced. Verdicts stay."""
    for verdict in (Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER):
        queue.submit()
        queue.store.complete(queue.claim(), result(verdict, run_record(passed=verdict is Verdict.ACCEPTED)))
    db.execute("UPDATE runner.job SET finished_at = now() - (4 - id) * interval '1 day'")
    db.execute(
        "INSERT INTO runner.superseded_run (run_id, submission_id, run, reason, superseded_at)"
        " SELECT -d, 1, '{}', 'x', now() - d * interval '1 day' FROM generate_series(1, 3) d"
    )
    reaped = queue.store.reap(keep_s=1.5 * DAY_S)
    assert (reaped.reports, reaped.superseded) == (1, 2)
    assert rows(db, "SELECT id, report IS NOT NULL AS told, verdict FROM runner.job ORDER BY id") == [
        (1, True, "accepted"),
        (2, False, "wrong_answer"),
        (3, True, "wrong_answer"),
    ]
    assert queue.store.reap(keep_s=1.5 * DAY_S) == NOTHING


def test_files_that_no_submission_has_go(queue: Bench, db: Db) -> None:
    """The newest hundred stay, since their submission may be about to come; every file is looked at in the end."""
    queue.submit(code=b"used")
    db.execute("INSERT INTO leaderboard.code_files (code) SELECT n::text::bytea FROM generate_series(1, 700) n")
    assert [queue.store.reap(keep_s=DAY_S).code for _ in range(3)] == [499, 100, 0]
    assert queue.store.reap(keep_s=DAY_S).code == 0
    assert (count(db, "leaderboard", "code_files"), count(db, "leaderboard", "submission")) == (102, 1)


def test_a_file_that_is_being_submitted_stays(queue: Bench, db: Db, database_url: str) -> None:
    """A submission that is not committed has locked it."""
    queue.submit(code=b"old")
    remove = "SELECT runner.remove_code((SELECT array_agg(id) FROM leaderboard.code_files))"
    db.execute("DELETE FROM leaderboard.submission")
    with psycopg.connect(database_url) as storing:
        storing.execute("SELECT runner.submit('identity', 'u2', 'x.py', 'old', 'test')")
        assert value(db, remove) == 0
    assert value(db, remove) == 0
    db.execute("DELETE FROM leaderboard.submission")
    assert value(db, remove) == 1


#: Each would decide by what was there before it got its lock.
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


def test_a_transaction_with_one_snapshot_is_refused(queue: Bench, db: Db) -> None:
    """It would decide by what was there before it got the lock."""
    queue.submit()
    for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE):
        db.isolation_level = level
        for call in CALLS:
            with refused("KR027", "expected read committed"), db.transaction():
                db.execute(call.encode())


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
