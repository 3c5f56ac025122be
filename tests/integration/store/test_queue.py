"""Claims, leases, fencing, cancellation and the final words of a submission.

A host's lease on all its jobs is one row, so a heartbeat writes that row and no job.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial

import psycopg
import pytest

from runner.base.errors import StaleAttemptError
from runner.base.model import Artifact, Job, JobState, Mode, Progress, Verdict
from runner.store import Stop, Wakeup
from tests.integration.store.conftest import (
    CODE,
    TASK,
    Bench,
    Db,
    count,
    notes,
    one,
    ranked,
    result,
    rows,
    run_record,
    value,
)
from tests.support.jobs import of_submission
from tests.support.many_files import many_files


def words(db: Db, submission_id: int) -> tuple[bool, str, str, str | None]:
    """What KernelBot sees: done, submission.status, job status, error."""
    ((done, status, job, error),) = rows(
        db,
        "SELECT s.done, s.status, t.status AS job, t.error FROM leaderboard.submission s"
        " JOIN leaderboard.submission_job_status t ON t.submission_id = s.id WHERE s.id = %s",
        submission_id,
    )
    return done, status, job, error


def test_a_claim_carries_everything_an_evaluation_needs(bench: Bench, db: Db) -> None:
    """Code, task, extra, seed and the fencing token come with the job, and the submission shows as running."""
    bench.board(extra={"harness": "builtin", "flops": "2*n"})
    submission_id = bench.submit(mode="leaderboard")
    job = of_submission(bench.claim(lease_s=30))
    expected = {
        "submission_id": submission_id,
        "leaderboard": "identity",
        "gpu_type": "CPU",
        "mode": Mode.LEADERBOARD,
        "secret": False,
        "attempt": 1,
        "user_id": "u1",
        "file_name": "fast.py",
        "code": CODE,
        "task": TASK,
        "extra": {"harness": "builtin", "flops": "2*n"},
        "failures": 0,
        "secret_seed": value(db, "SELECT secret_seed FROM leaderboard.leaderboard"),
    }
    assert vars(job) == vars(job) | expected
    assert job.started_at >= job.created_at
    assert words(db, submission_id) == (False, "active", "running", None)
    lease = "SELECT extract(epoch FROM lease_expires_at - started_at)::int FROM runner.job WHERE id = %s"
    assert value(db, lease, job.id) == 30


def test_a_result_is_committed_with_kernelbots_columns(queue: Bench, db: Db) -> None:
    """Runs, times, score, artifacts, job and final status are written together."""
    submission_id = queue.submit()
    job = queue.claim()
    artifact = Artifact(name="trace.json", media_type="application/json", data=b"{}\x00")
    done = queue.store.complete(job, result(Verdict.ACCEPTED, run_record("test"), artifacts=(artifact,)))
    assert done.submission_done
    row = one(db, "SELECT * FROM leaderboard.runs")
    assert row == row | {
        "mode": "test",
        "secret": False,
        "runner": "CPU",
        "score": None,
        "passed": True,
        "compilation": None,
        "result": {"check": "pass"},
        "start_time": job.started_at + timedelta(milliseconds=1),
        "end_time": job.started_at + timedelta(seconds=2),
    }
    view = queue.store.submission(submission_id)
    assert (view.status.state, view.status.verdict, view.status.score_s) == (JobState.DONE, Verdict.ACCEPTED, None)
    (shown,) = view.jobs
    (kept,) = shown.artifacts
    assert queue.store.artifact(kept.id) == artifact
    assert (shown.build_ms, shown.eval_ms, shown.host, [run.mode for run in shown.runs]) == (5, 7, "host-a", ["test"])
    assert words(db, submission_id) == (True, "active", "succeeded", None)


def test_a_score_keeps_every_digit(queue: Bench, db: Db) -> None:
    """The numeric column holds the float's shortest text, not a rounding of it."""
    queue.submit(mode="leaderboard")
    public = queue.claim()
    queue.store.complete(public, ranked(public, 1.2345678901234567e-06))
    score = value(db, "SELECT score FROM leaderboard.runs WHERE mode = 'leaderboard'")
    assert score == Decimal("1.2345678901234567e-06")


def test_a_stale_attempt_writes_nothing_but_evidence(queue: Bench, db: Db) -> None:
    """After a reclaim the old claimer's result is refused and kept; the new claimer's counts."""
    submission_id = queue.submit()
    old = queue.claim(lease_s=-1)
    assert len(queue.store.reclaim()) == 1
    new = queue.claim(host="host-b")
    assert (new.id, new.attempt) == (old.id, 2)
    wrong = result(Verdict.WRONG_ANSWER, run_record(passed=False))
    says = "attempt 1: expected to be running still, but it is running at attempt 2"
    with pytest.raises(StaleAttemptError, match=says):
        queue.store.complete(old, wrong)
    assert count(db, "leaderboard", "runs") == 0
    evidence = rows(db, "SELECT job_id, attempt, verdict, result #> '{runs,0,passed}' FROM runner.stale_result")
    assert evidence == [(old.id, 1, "wrong_answer", False)]
    for end in (
        partial(queue.store.fail, error="x", report=None, slot="cpu0"),
        partial(queue.store.release, reason="x"),
        queue.store.cancelled,
    ):
        with pytest.raises(StaleAttemptError):
            end(old)
    queue.store.progress(old, Progress(phase="test", done=1, total=2))
    assert value(db, "SELECT progress FROM runner.job") is None
    queue.accept(new)
    assert words(db, submission_id)[2] == "succeeded"


def test_a_result_of_another_claim_with_the_same_numbers_is_refused(queue: Bench, db: Db) -> None:
    """After a restored backup or before another database, job and attempt may fit; the moment of the claim does not."""
    queue.submit()
    job = queue.claim()
    elsewhere = replace(job, started_at=job.started_at - timedelta(days=1))
    with pytest.raises(StaleAttemptError):
        queue.accept(elsewhere)
    assert (count(db, "leaderboard", "runs"), count(db, "runner", "stale_result")) == (0, 1)
    assert value(db, "SELECT submission_id FROM runner.event") == job.submission_id
    queue.accept(job)


def test_a_heartbeat_renews_what_is_ours_and_names_what_is_not(queue: Bench, db: Db) -> None:
    """Lease, KernelBot's heartbeat and the host's last_seen move; a foreign or ended attempt is told."""
    queue.register("host-a")
    db.execute("UPDATE runner.host SET last_seen = now() - interval '1 hour'")
    for _ in range(3):
        queue.submit()
    kept, cancelled, lost = queue.claim(lease_s=1), queue.claim(), queue.claim(host="host-b")
    db.execute("UPDATE leaderboard.submission_job_status SET last_heartbeat = now() - interval '1 hour'")
    queue.store.cancel(cancelled.submission)
    held = [(kept.id, 1), (cancelled.id, 1), (lost.id, 1), (kept.id + 1000, 1)]
    states = queue.store.heartbeat(host="host-a", lease_s=600, held=held)
    assert [(state.job_id, state.ours, state.cancel_requested) for state in states] == [
        (kept.id, True, False),
        (cancelled.id, True, True),
        (lost.id, False, False),
        (kept.id + 1000, False, False),
    ]
    lease = "SELECT extract(epoch FROM expires_at - now()), job_ids FROM runner.lease WHERE host = 'host-a'"
    ((left_s, job_ids),) = rows(db, lease)
    assert 590 < left_s <= 600
    assert job_ids == [kept.id, cancelled.id]
    beaten = "FROM leaderboard.submission_job_status WHERE last_heartbeat > now() - interval '1 minute' ORDER BY 1"
    assert rows(db, f"SELECT submission_id {beaten}") == [(kept.submission_id,), (cancelled.submission_id,)]
    (host,) = queue.store.hosts()
    assert (host.name, host.running, host.slots) == ("host-a", 2, [{"gpu_type": "CPU"}])
    assert host.silent_s < 60
    assert list(queue.store.heartbeat(host="host-a", lease_s=600, held=[])) == []
    assert host.stopped_at is None
    queue.store.unregister_host("host-a", instance="host-a")
    (host,) = queue.store.hosts()
    assert host.stopped_at is not None


def test_no_text_of_a_submission_can_lose_its_result(queue: Bench, db: Db) -> None:
    """NUL bytes, lone surrogates and NaN in any string or number are replaced, not refused."""
    submission_id = queue.submit()
    job = queue.claim()
    ugly = "a\x00b\ud800c"
    run = run_record(meta={"stdout": ugly, ugly: float("nan"), "list": [ugly, float("inf"), None]}, result={"k": ugly})
    queue.store.progress(job, Progress(phase=ugly, done=1, total=2))
    artifact = Artifact(name=ugly, media_type=ugly, data=b"\x00")
    queue.store.complete(
        job, result(Verdict.WRONG_ANSWER, run, error=ugly, report={"deep": {"x": (ugly,)}}, artifacts=(artifact,))
    )
    view = queue.store.submission(submission_id).jobs[0]
    clean = "a\ufffdb\ufffdc"
    assert view.runs[0].meta == {"stdout": clean, clean: "nan", "list": [clean, "inf", None]}
    assert (view.error, view.report, view.runs[0].result) == (clean, {"deep": {"x": [clean]}}, {"k": clean})
    assert view.artifacts[0].name == clean


def test_progress_of_a_locked_job_does_not_wait(queue: Bench, db: Db) -> None:
    """`progress` says that nothing was shown, and sends nothing. A job that is over has nothing left to show."""
    queue.submit()
    job = queue.claim()
    progress = Progress(phase="test", done=1, total=2)
    db.execute("LISTEN runner_events")
    with psycopg.connect(queue.url) as other:
        other.execute("SELECT FROM runner.job FOR UPDATE")
        assert not queue.store.progress(job, progress)
    assert value(db, "SELECT progress FROM runner.job") is None
    assert notes(db) == []
    assert queue.store.progress(job, progress)
    assert value(db, "SELECT progress FROM runner.job")["done"] == 1
    queue.accept(job)
    assert queue.store.progress(job, progress)
    assert value(db, "SELECT progress FROM runner.job") is None


def test_only_progress_and_what_is_announced_is_notified(queue: Bench, db: Db) -> None:
    """Neither a claim nor a result sends a notification by itself. A secret job's progress is never announced."""
    queue.submit(mode="leaderboard")
    queue.free_secret_jobs()
    for channel in ("runner_events", "runner_queue", "runner_hosts"):
        db.execute(f"LISTEN {channel}".encode())
    public, secret = queue.claim(), queue.claim()
    for job in (public, secret):
        queue.store.progress(job, Progress(phase="test", done=1, total=3))
    line = queue.store.queue(limit=1)[0]
    assert line.progress == ({"phase": "test", "done": 1, "total": 3, "gpu_type": "CPU"},)
    queue.store.release(public, reason="x")
    queue.store.fail(queue.claim(), error="x", report=None, slot="cpu0")
    queue.store.complete(secret, ranked(secret))
    queue.store.announce(events=[{"event": "one"}, {"event": "two"}], wake=["H100", "CPU", "CPU"])
    queue.store.announce(wake=["x" * 9000])
    heard = [(note.channel, note.payload) for note in notes(db)]
    assert json.loads(heard[0][1]) == {
        "event": "progress",
        "submission_id": public.submission_id,
        "job_id": public.id,
        "gpu_type": "CPU",
        "secret": False,
        "phase": "test",
        "done": 1,
        "total": 3,
    }
    assert heard[1:] == [
        ("runner_events", '{"event": "one"}'),
        ("runner_events", '{"event": "two"}'),
        ("runner_queue", "CPU,H100"),
        ("runner_queue", ""),
    ]


def test_listen_hears_everything_that_is_pending_and_the_stop_event(queue: Bench, db: Db) -> None:
    """The first call says that something may have been missed; then only notifications wake it; stop ends it."""
    stop = Stop()
    assert queue.store.listen(stop=stop, timeout_s=5) == Wakeup(all_hosts=True)
    assert queue.store.listen(stop=stop, timeout_s=0.01) is None
    queue.submit()
    with db.transaction():
        db.execute("NOTIFY runner_hosts, 'host-a,host-b'")
        db.execute("NOTIFY runner_queue, 'H100'")
    db.execute("NOTIFY runner_hosts")
    heard = Wakeup()
    # What comes from three transactions comes in up to three reads.
    while not heard.all_hosts:
        more = queue.store.listen(stop=stop, timeout_s=60)
        assert more is not None
        heard = Wakeup(
            gpu_types=heard.gpu_types | more.gpu_types, hosts=heard.hosts | more.hosts, all_hosts=more.all_hosts
        )
    assert heard == Wakeup(gpu_types=frozenset({"CPU", "H100"}), hosts=frozenset({"host-a", "host-b"}), all_hosts=True)
    threading.Timer(0.05, stop.set).start()
    assert queue.store.listen(stop=stop, timeout_s=60) is None
    assert stop.is_set()


def test_listen_waits_in_a_process_with_thousands_of_files(queue: Bench, db: Db) -> None:
    """As trainers have them; select(2) takes no descriptor above 1023."""
    with many_files():
        stop = Stop()
        assert stop.fileno() > 1023
        assert queue.store.listen(stop=stop, timeout_s=5) == Wakeup(all_hosts=True)
        db.execute("NOTIFY runner_queue, 'H100'")
        assert queue.store.listen(stop=stop, timeout_s=60) == Wakeup(gpu_types=frozenset({"H100"}))


def test_kernelbots_deletes_take_our_rows_along(queue: Bench, db: Db, finish: Callable[..., None]) -> None:
    """Deleting runs, submission and leaderboard the way KernelBot does leaves nothing of ours, and no error."""
    queue.submit(mode="leaderboard", idempotency_key="k")
    finish()
    queue.submit()
    running = queue.claim(lease_s=-1)
    queue.store.reclaim()
    job = queue.claim()
    with pytest.raises(StaleAttemptError):
        queue.accept(running)
    for table in ("runs", "submission", "templates", "leaderboard"):
        db.execute(f"DELETE FROM leaderboard.{table}".encode())  # noqa: S608 - tables above
    for table in ("job", "job_run", "stale_result", "artifact", "idempotency", "board"):
        assert count(db, "runner", table) == 0, table
    for gone in (job, replace(job, attempt=7)):
        with pytest.raises(StaleAttemptError, match="it is gone"):
            queue.accept(gone)


def test_gpu_types_show_their_queue_and_stay_when_nothing_changed(bench: Bench, db: Db) -> None:
    """Daemons publish their registries; the list counts waiting jobs under name and aliases."""
    bench.board("identity", "B200_Nebius")
    entry = ("B200", "nvidia", ["B200_Nebius"], "Blackwell")
    bench.store.sync_gpu_types([entry])
    before = one(db, "SELECT xmin::text, * FROM runner.gpu_type")
    bench.store.sync_gpu_types([entry])
    assert one(db, "SELECT xmin::text, * FROM runner.gpu_type") == before
    bench.submit()
    (line,) = bench.store.gpu_types()
    assert (line.name, line.vendor, line.aliases, line.queued) == ("B200", "nvidia", ("B200_Nebius",), 1)


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
