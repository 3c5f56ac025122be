"""Claims of several jobs, what they say of the host, whom they avoid; nothing here waits for anybody's lock."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.base.errors import DatabaseUnavailableError, HostNameTakenError, StaleAttemptError
from runner.base.model import Job, JobState, Verdict
from runner.store import Claims, Completion, Ended
from runner.store.clean import to_jsonb
from runner.store.results import _result
from tests.integration.store.conftest import Bench, Db, count, notes, refused, result, rows, run_record, value


def claim(bench: Bench, host: str = "host-a", **slots: int) -> Claims:
    """What a host with these free slots gets."""
    return bench.store.claim(host=host, slots=slots, lease_s=60)


def test_a_claim_fills_the_free_slots_of_one_type(bench: Bench) -> None:
    """As many jobs as the best type has slots, never of two types or priorities."""
    bench.board("identity", "A100", "H100")
    for _ in range(5):
        bench.submit(gpu_types=["A100"])
    bench.submit(gpu_types=["H100"], priority=1)
    assert [job.gpu_type for job in claim(bench, A100=3, H100=2).jobs] == ["H100"]
    assert [job.gpu_type for job in claim(bench, A100=3, H100=2).jobs] == ["A100"] * 3
    assert len(claim(bench, A100=1).jobs) == 1
    assert len(claim(bench, A100=4).jobs) == 1
    assert claim(bench, A100=4).jobs == ()


def test_a_claim_says_how_the_host_stands(queue: Bench, db: Db) -> None:
    """Registered, draining and why, overdue leases, rivals: with and without free slots."""
    # The sweep of every two minutes is not due, however old the template of this database is.
    db.execute("UPDATE runner.sweep SET swept_at = now()")
    assert not claim(queue).registered
    queue.register("host-a")
    queue.register("host-b")
    queue.register("host-c", "H100")
    queue.submit()
    well = Claims(jobs=(), draining=False, drain_reason=None, registered=True, overdue=False, rivals=None)
    assert claim(queue) == well
    db.execute("UPDATE runner.host SET last_seen = now() - interval '11 seconds' WHERE name = 'host-a'")
    assert claim(queue).rivals == 2
    assert claim(queue).rivals is None
    db.execute("UPDATE runner.host SET draining = true, drain_reason = 'fan' WHERE name = 'host-a'")
    drained = claim(queue, CPU=1)
    assert (drained.jobs, drained.draining, drained.drain_reason) == ((), True, "fan")
    queue.store.unregister_host("host-a", instance="host-a")
    assert not claim(queue).registered
    queue.claim(host="host-b", lease_s=-1)
    assert queue.overdue()


def test_two_daemons_cannot_go_by_one_name(bench: Bench, db: Db) -> None:
    """The name is free once its daemon has said goodbye or was silent for a minute; draining outlives all of it."""
    bench.register("host-a")
    db.execute("UPDATE runner.host SET draining = true")
    bench.register("host-a", version="2")
    with pytest.raises(HostNameTakenError, match="expected instance other, found host-a"):
        bench.register("host-a", instance="other")
    db.execute("UPDATE runner.host SET last_seen = now() - interval '61 seconds'")
    bench.register("host-a", instance="other")
    bench.store.unregister_host("host-a", instance="other")
    bench.register("host-a", instance="third")
    (host,) = bench.store.hosts()
    assert (host.draining, host.stopped_at, host.gpu_types) == (True, None, ("CPU",))


def fail(bench: Bench, db: Db, job: Job, slot: str = "cpu0") -> None:
    """A failure whose pause is over at once; what is to be avoided stays so for a minute."""
    bench.store.fail(job, error="no disk", report=None, slot=slot)
    db.execute("UPDATE runner.job SET not_before = now()")


def test_how_often_a_job_is_tried_again_is_set_for_the_queue(queue: Bench, db: Db) -> None:
    """Failures, the pauses between them, lost leases and unanswered claims, each with a number of its own."""
    queue.register("host-a")
    queue.store.set_retry(max_attempts=4, pause_s=100, pause_max_s=150, max_lost_leases=2, max_unanswered_claims=1)
    pause = "SELECT extract(epoch FROM not_before - now())::float8 FROM runner.job ORDER BY id DESC LIMIT 1"
    queue.submit()
    pauses_s = []
    for _ in range(3):
        assert queue.store.fail(queue.claim(), error="x", report=None, slot="cpu0").state is JobState.QUEUED
        pauses_s.append(value(db, pause))
        queue.end_pauses()
    assert pauses_s == pytest.approx([100, 150, 150], rel=0.5)
    assert pauses_s[0] <= 100 < pauses_s[1]
    assert queue.store.fail(queue.claim(), error="x", report=None, slot="cpu0").state is JobState.DONE
    queue.submit()
    ends = []
    for _ in range(3):
        queue.claim()
        ends += [taken.state for taken in queue.store.recover(host="host-a", keep=())]
    assert ends == [JobState.QUEUED, JobState.QUEUED, JobState.DONE]


def test_a_failed_job_goes_to_another_host_first(queue: Bench, db: Db) -> None:
    """For a minute not to the one it failed on, if another one that is alive serves its type."""
    queue.register("host-a")
    queue.register("host-b")
    queue.submit()
    fail(queue, db, queue.claim())
    assert queue.idle()
    job = queue.claim(host="host-b")
    assert job.avoid_slot is None
    fail(queue, db, job)
    assert queue.idle(host="host-b")
    db.execute("UPDATE runner.job SET avoid_until = now()")
    assert queue.claim(host="host-b").failures == 2


@pytest.mark.parametrize(
    "change",
    ["draining = true", "stopped_at = now()", "last_seen = now() - interval '61 seconds'", "gpu_types = '{H100}'"],
)
def test_without_another_host_a_failed_job_avoids_the_slot(queue: Bench, db: Db, change: str) -> None:
    """A host that drains, has stopped, is silent or serves other types is no other host."""
    queue.register("host-a")
    queue.register("host-b")
    db.execute(f"UPDATE runner.host SET {change} WHERE name = 'host-b'".encode())  # noqa: S608 - a constant above
    queue.submit()
    fail(queue, db, queue.claim(), slot="cpu1")
    assert queue.claim().avoid_slot == "cpu1"


def test_every_cause_is_kept(queue: Bench, db: Db) -> None:
    """Failures and lost leases with attempt, host, slot and reason; the events tell operators."""
    queue.submit()
    fail(queue, db, queue.claim())
    queue.claim(host="host-b", lease_s=-1)
    (taken,) = queue.store.reclaim()
    assert (taken.state, taken.gpu_type, taken.secret, taken.submission_done) == (JobState.QUEUED, "CPU", False, False)
    queue.store.release(queue.claim(), reason="drained")
    causes = value(db, "SELECT causes FROM runner.job")
    assert [(cause["attempt"], cause["host"], cause["slot"], cause["kind"], cause["error"]) for cause in causes] == [
        (1, "host-a", "cpu0", "fail", "no disk"),
        (2, "host-b", None, "reclaim", "host host-b did not renew its lease"),
    ]
    assert rows(db, "SELECT kind, attempt, host FROM runner.event ORDER BY id") == [
        ("failed", 1, "host-a"),
        ("reclaimed", 2, "host-b"),
        ("released", 3, "host-a"),
    ]
    db.execute("UPDATE runner.retry SET max_attempts = 100")
    for _ in range(30):
        fail(queue, db, queue.claim())
        queue.end_pauses()
    causes = value(db, "SELECT causes FROM runner.job")
    assert (len(causes), causes[-1]["attempt"]) == (20, 33)


@pytest.mark.parametrize(
    "holding",
    [
        "SELECT runner.cancel({other})",
        "SELECT FROM leaderboard.submission WHERE id = {other} FOR UPDATE",
        "SELECT FROM leaderboard.submission_job_status FOR UPDATE",
        "SELECT FROM runner.clock FOR UPDATE",
        "UPDATE runner.clock SET turn = turn",
        "UPDATE runner.host SET draining = false",
        "SELECT FROM runner.job WHERE submission_id = {other} FOR UPDATE",
    ],
)
def test_a_forgotten_transaction_stops_no_host(queue: Bench, db: Db, holding: str) -> None:
    """Whatever a frontend holds: claims, heartbeats and reclaims of everything else go on."""
    queue.register("host-a")
    held = queue.claim_of(queue.submit())
    other = queue.submit()
    queue.claim_of(other)
    free = queue.submit()
    db.execute("UPDATE runner.host SET last_seen = now() - interval '1 hour'")
    db.execute("SET lock_timeout = '1s'")
    with db.transaction():
        db.execute(holding.format(other=other).encode())
        assert [job.submission_id for job in claim(queue, CPU=2).jobs] == [free]
        states = queue.store.heartbeat(host="host-a", lease_s=60, held=[(held.id, 1), (other, 1)])
        assert all(state.ours for state in states)
        assert queue.store.reclaim() == []


def test_a_lock_on_a_result_delays_no_other_result(queue: Bench, db: Db) -> None:
    """Of a batch, the others are committed at once; the one that is held comes back, to be given again alone."""
    jobs = [queue.claim_of(queue.submit()) for _ in range(3)]
    found = result(Verdict.ACCEPTED, run_record())
    with db.transaction():
        db.execute("SELECT FROM leaderboard.submission WHERE id = %s FOR UPDATE", (jobs[0].submission_id,))
        outcomes = queue.store.complete_all([(job, found) for job in jobs])
    assert outcomes == [None, Completion(submission_done=True), Completion(submission_done=True)]
    assert queue.store.complete(jobs[0], found).submission_done


@pytest.mark.parametrize("table", ["runner.job", "leaderboard.submission_job_status"])
def test_a_batch_gives_up_after_a_moment_where_something_else_is_held(queue: Bench, db: Db, table: str) -> None:
    """A forgotten transaction must not keep a host's only connection for results: what was given is given again."""
    job = queue.claim_of(queue.submit())
    found = result(Verdict.ACCEPTED, run_record())
    with db.transaction():
        db.execute(f"SELECT FROM {table} FOR UPDATE".encode())
        with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
            queue.store.complete_all([(job, found)])
    assert queue.store.complete_all([(job, found)]) == [Completion(submission_done=True)]


def test_cancelling_a_running_job_calls_its_host(bench: Bench, db: Db) -> None:
    """The daemons of what runs are called, not the frontends; they hear of it when it has stopped."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(gpu_types=["A100", "H100"], mode="leaderboard")
    claim(bench, host="host-b", A100=2)
    job = bench.claim("H100")
    for channel in ("runner_events", "runner_queue", "runner_hosts"):
        db.execute(f"LISTEN {channel}".encode())
    bench.store.cancel(submission_id)
    bench.store.cancel(bench.submit(gpu_types=["A100"]))
    heard = [(note.channel, note.payload) for note in notes(db)]
    assert heard[:2] == [("runner_hosts", "host-a,host-b"), ("runner_queue", "A100")]
    assert [channel for channel, _ in heard[2:]] == ["runner_events"]
    assert bench.store.cancelled(job) == Ended(state=JobState.CANCELLED, submission_done=False)


def test_a_name_that_another_daemon_has_taken_serves_its_owner_only(queue: Bench, db: Db) -> None:
    """A host that stood still for a minute gets no job, renews no lease, releases nothing, and does not look alive."""
    for _ in range(3):
        queue.submit()
    queue.register("host-a", instance="first")
    held = queue.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="first").jobs[0]
    db.execute("UPDATE runner.host SET last_seen = now() - interval '2 minutes'")
    queue.register("host-a", instance="second")
    (own,) = queue.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="second").jobs
    db.execute("UPDATE runner.host SET last_seen = now() - interval '30 seconds'")

    claims = queue.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="first")
    assert (claims.jobs, claims.registered, claims.rivals) == ((), False, None)
    keys = [(held.id, 1), (own.id, 1)]
    states = queue.store.heartbeat(host="host-a", lease_s=600, held=keys, instance="first")
    assert [state.ours for state in states] == [False, False]
    assert queue.store.recover(host="host-a", keep=(), instance="first") == []
    assert value(db, "SELECT now() - last_seen > interval '29 seconds' FROM runner.host"), "it does not look alive"
    renewed = "SELECT max(lease_expires_at) > now() + interval '61 seconds', count(*) FROM runner.job"
    assert rows(db, f"{renewed} WHERE state = 'running'") == [(False, 2)]
    assert queue.store.claim(host="host-a", slots={}, lease_s=60, instance="second").registered
    assert [back.job_id for back in queue.store.recover(host="host-a", keep=keys[1:], instance="second")] == [held.id]


#: What may stand where something that can be read should be, and what is said of it.
ODD = {
    "a number too long": (
        "UPDATE leaderboard.leaderboard SET task = ('{\"n\": ' || repeat('9', 5000) || '}')::jsonb WHERE name = 'odd'",
        "task: ValueError: ",
    ),
    "JSON too deep": (
        "UPDATE runner.board SET extra = (repeat('[', 12000) || repeat(']', 12000))::jsonb WHERE leaderboard_id = 1",
        "extra: RecursionError: ",
    ),
    "a mode of tomorrow": (
        "ALTER TABLE runner.job DROP CONSTRAINT job_mode_check; UPDATE runner.job SET mode = 'dream' WHERE id = 1",
        "'dream' is not a valid Mode",
    ),
}
if sys.version_info >= (3, 14):
    # Its json reads all that PostgreSQL keeps.
    del ODD["JSON too deep"]


@pytest.mark.parametrize("odd", ODD)
def test_a_job_that_cannot_be_read_spoils_no_other(bench: Bench, db: Db, odd: str) -> None:
    """It is told apart with the cause; failed often enough it ends, and what was behind it has long been served."""
    bench.board("odd", extra={"harness": "builtin"})
    bench.board()
    unreadable = bench.submit(leaderboard="odd")
    behind = bench.submit()
    statement, cause = ODD[odd]
    db.execute(statement.encode())
    claims = claim(bench, CPU=2)
    assert [job.submission_id for job in claims.jobs] == [behind]
    for number in range(1, 4):
        (bad,) = claims.unreadable
        assert (bad.claimed.submission_id, bad.claimed.gpu_type, bad.claimed.attempt) == (unreadable, "CPU", number)
        assert bad.cause.startswith(cause), bad.cause
        ended = bench.store.fail(bad.claimed, error=bad.cause, report=None, slot="none")
        db.execute("UPDATE runner.job SET not_before = NULL")
        claims = claim(bench, CPU=2)
    assert claims.unreadable == ()
    assert ended == Ended(state=JobState.DONE, submission_done=True)
    ((verdict, error),) = rows(db, "SELECT verdict, error FROM runner.job WHERE submission_id = %s", unreadable)
    assert (verdict, cause in error) == ("internal_error", True)


def test_a_result_given_twice_in_one_batch_is_written_once(queue: Bench, db: Db) -> None:
    """The database ensures it, for every caller: the first counts, the second is to be given again."""
    jobs = [queue.claim_of(queue.submit()) for _ in range(2)]
    accepted, wrong = result(Verdict.ACCEPTED, run_record()), result(Verdict.WRONG_ANSWER, run_record(passed=False))
    committed = Completion(submission_done=True)
    given = [(jobs[0], accepted), (jobs[1], accepted), (jobs[0], wrong), (jobs[0], accepted)]
    assert queue.store.complete_all(given) == [committed, committed, None, None]
    assert rows(db, "SELECT verdict FROM runner.job") == [("accepted",)] * 2
    assert (count(db, "leaderboard", "runs"), count(db, "runner", "stale_result")) == (2, 0)
    stale, again = queue.store.complete_all([(jobs[0], wrong)] * 2)
    assert isinstance(stale, StaleAttemptError)
    assert again is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(({"score_s": score_s}, "a score is not above 0") for score_s in (0, -1, "NaN", "Infinity", "-Infinity")),
        ({"meta": {"stdout": "x" * (32 << 20)}}, "expected 32 MiB at most"),
    ],
)
def test_what_no_daemon_sends_is_not_stored(queue: Bench, db: Db, changes: dict[str, Any], says: str) -> None:
    """A score that is none, more than a message holds: the database refuses it for every caller."""
    queue.submit(mode="leaderboard")
    job = queue.claim()
    given = _result(job, result(Verdict.ACCEPTED, run_record("leaderboard", score_s=1.0)))
    given["runs"][0] |= changes
    with refused("KR028", says):
        db.execute("SELECT FROM runner.complete(%s)", (to_jsonb([given]),))
    assert value(db, "SELECT state FROM runner.job WHERE id = %s", job.id) == "running"


def test_a_job_that_no_host_begins_in_time_is_cancelled(bench: Bench, db: Db) -> None:
    """A claim says that there is one, of whatever type; reclaim ends it. One that was begun has no such end."""
    bench.board("identity", "A100", "H100")
    until = datetime.now(UTC) + timedelta(hours=1)
    late = bench.submit(gpu_types=["A100", "H100"], expires_at=until)
    kept = bench.submit(gpu_types=["A100"])
    begun = bench.claim("A100")
    assert begun.submission_id == late
    assert (claim(bench, H100=0).overdue, bench.store.reclaim()) == (False, [])
    db.execute("UPDATE runner.job SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL")
    assert bench.overdue()
    (ended,) = bench.store.reclaim()
    facts = (ended.submission_id, ended.gpu_type, ended.state, ended.submission_done)
    assert facts == (late, "H100", JobState.CANCELLED, False)
    assert not bench.overdue()
    assert "no host began it by" in str(bench.store.submission(late).jobs[1].error)
    assert bench.accept(begun).submission_done
    assert bench.claim("A100").submission_id == kept
    assert rows(db, "SELECT id FROM runner.job WHERE expires_at IS NOT NULL") == []
