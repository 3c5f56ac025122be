"""A host's lease on all its jobs is one row, so a heartbeat writes that row and no job."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from runner.base.model import Job, JobState
from tests.integration.store.conftest import Bench, Db, rows, value


def held(jobs: Sequence[Job]) -> list[tuple[int, int]]:
    """What a heartbeat names."""
    return [(job.id, job.attempt) for job in jobs]


def claimed(bench: Bench, number: int) -> list[Job]:
    """So many jobs that host-a has claimed."""
    bench.board()
    for _ in range(number):
        bench.submit()
    return [bench.claim() for _ in range(number)]


def versions(db: Db) -> list[tuple[object, ...]]:
    """Which transaction wrote each job and each status last."""
    return rows(
        db,
        "SELECT j.id, j.xmin::text AS job, t.xmin::text AS status"
        " FROM runner.job j JOIN leaderboard.submission_job_status t USING (submission_id) ORDER BY j.id",
    )


def test_a_heartbeat_writes_no_job_and_a_silent_host_loses_all_of_them(bench: Bench, db: Db) -> None:
    """The first beat takes the jobs in; those after it leave the rows of jobs and submissions alone.

    What ended before is left alone, and nothing is overdue afterwards.
    """
    jobs = claimed(bench, 8)
    bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))
    before = versions(db)
    bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))
    assert versions(db) == before
    bench.store.release(jobs[0], reason="not this one")
    assert bench.store.reclaim() == []
    db.execute("UPDATE runner.lease SET expires_at = now()")
    assert bench.overdue()
    taken = [(found.job_id, found.state) for found in bench.store.reclaim()]
    assert taken == [(job.id, JobState.QUEUED) for job in jobs[1:]]
    assert not bench.overdue()


def test_a_heartbeat_in_time_saves_what_has_expired(bench: Bench, db: Db) -> None:
    """After an outage holders renew before others reclaim."""
    jobs = claimed(bench, 1)
    for _ in range(2):
        bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))
        db.execute("UPDATE runner.lease SET expires_at = now() - interval '1 second'")
    assert bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))[0].ours
    assert bench.store.reclaim() == []


def test_a_job_that_a_heartbeat_does_not_name_any_more_ends(bench: Bench, db: Db) -> None:
    """Its daemon lives and has forgotten it: its own lease begins again, and ends."""
    kept, forgotten = claimed(bench, 2)
    bench.store.heartbeat(host="host-a", lease_s=60, held=held([kept, forgotten]))
    bench.store.heartbeat(host="host-a", lease_s=-1, held=held([kept]))
    bench.store.heartbeat(host="host-a", lease_s=60, held=held([kept]))
    assert [found.job_id for found in bench.store.reclaim()] == [forgotten.id]
    assert value(db, "SELECT state FROM runner.job WHERE id = %s", kept.id) == "running"


def test_a_heartbeat_beside_a_reclaim_takes_no_job_in(bench: Bench, db: Db, database_url: str) -> None:
    """It waits for nothing, and says what is so now: the jobs are its own until the reclaim is committed."""
    jobs = claimed(bench, 1)
    bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))
    with psycopg.connect(database_url) as reclaiming:
        reclaiming.execute("UPDATE runner.lease SET job_ids = '{}'")
        before = rows(db, "SELECT expires_at FROM runner.lease")
        assert bench.store.heartbeat(host="host-a", lease_s=600, held=held(jobs))[0].ours
        assert rows(db, "SELECT expires_at FROM runner.lease") == before
        reclaiming.rollback()
    bench.store.heartbeat(host="host-a", lease_s=600, held=held(jobs))
    assert value(db, "SELECT expires_at > now() + interval '590 seconds' FROM runner.lease")


def test_a_job_in_no_hosts_lease_gets_one_of_its_own(bench: Bench, db: Db) -> None:
    """The host's row was removed: the job does not run for ever."""
    jobs = claimed(bench, 2)
    bench.store.heartbeat(host="host-a", lease_s=60, held=held(jobs))
    bench.store.reap(keep_s=86_400)
    finite = "SELECT count(*) FROM runner.job WHERE lease_expires_at < now() + interval '1 hour'"
    assert value(db, finite) == 0
    db.execute("DELETE FROM runner.lease")
    bench.store.reap(keep_s=86_400)
    assert value(db, finite) == 2


def test_after_the_clock_was_put_back_hosts_are_seen_and_scores_are_copied(queue: Bench, db: Db) -> None:
    """What was noted by the clock before lies ahead of now."""
    queue.register("host-a")
    db.execute("UPDATE runner.score_mark SET noted_at = now() + interval '1 hour'")
    db.execute("SELECT runner.keep_scores(100)")
    assert value(db, "SELECT noted_at <= now() FROM runner.score_mark")
    for look in (
        lambda: queue.store.claim(host="host-a", slots={}, lease_s=60, instance="host-a"),
        lambda: queue.store.heartbeat(host="host-a", lease_s=60, held=(), instance="host-a"),
    ):
        db.execute("UPDATE runner.host SET last_seen = now() + interval '1 hour'")
        look()
        assert value(db, "SELECT last_seen <= now() FROM runner.host")
