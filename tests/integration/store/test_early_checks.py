"""A job that waits is given out once for a check of its file, and its result is committed if nothing was faster."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from runner.base.model import JobResult, SubmissionJob, Verdict
from runner.store import Completion
from tests.integration.store.conftest import Bench, Db, ranked, result, rows, run_record

REFUSED = result(Verdict.COMPILE_ERROR, run_record(passed=False))


@pytest.fixture
def waiting(bench: Bench, db: Db) -> Bench:
    """A board of a type whose only slot is busy."""
    bench.board()
    bench.register("host-a")
    bench.register("host-b")
    bench.submit(user_id="busy")
    bench.claim(instance="host-a")
    return bench


def check(
    bench: Bench, db: Db, host: str = "host-a", gpu_type: str = "CPU", instance: str | None = None
) -> SubmissionJob | None:
    """The job that a host gets, once all have waited for a minute."""
    db.execute("UPDATE runner.job SET created_at = created_at - interval '1 minute'")
    return bench.store.take_check(host=host, gpu_types=[gpu_type], instance=instance or host)


def given(bench: Bench, db: Db) -> SubmissionJob:
    """The job that a host gets; there is one."""
    job = check(bench, db)
    assert job is not None
    return job


def commit(bench: Bench, job: SubmissionJob, host: str = "host-a", outcome: JobResult = REFUSED) -> Completion | None:
    """Tell what a check has seen."""
    return bench.store.complete_waiting(job, outcome, host=host, instance=host)


def test_a_job_is_given_as_a_claim_gives_it_and_goes_on_waiting(waiting: Bench, db: Db) -> None:
    """All that an evaluation needs, and no change of what others see; the claim has the same attempt."""
    submission_id = waiting.submit()
    job = given(waiting, db)
    assert rows(db, "SELECT state, started_at FROM runner.job WHERE id = %s", job.id) == [("queued", None)]
    claimed = waiting.claim_of(submission_id)
    assert {**vars(claimed), "started_at": job.started_at} == vars(job)


def test_each_job_is_given_once_in_the_order_of_claims(waiting: Bench, db: Db) -> None:
    """The turns of users count: who has a hundred jobs does not hold up who has one."""
    many = [waiting.submit(user_id="many", priority=0) for _ in range(3)]
    one = waiting.submit(user_id="one")
    hosts = ["host-a", "host-b", "host-a", "host-b", "host-a"]
    jobs = [check(waiting, db, host) for host in hosts]
    order = [None if job is None else job.submission_id for job in jobs]
    assert order == [*sorted([many[0], one]), many[1], many[2], None]


@pytest.mark.parametrize(
    "why", ["young", "another type", "draining", "paused type", "paused board", "other instance", "unclaimed class"]
)
def test_what_no_claim_would_take_is_not_given(waiting: Bench, db: Db, why: str) -> None:
    """Nor what has only just been submitted."""
    waiting.submit(priority=1 if why == "unclaimed class" else 0)
    match why:
        case "young":
            # As if the clock stood still.
            db.execute("UPDATE runner.job SET created_at = now() + interval '2 minutes'")
        case "draining":
            db.execute("SELECT runner.drain('host-a', 'fan')")
        case "paused type":
            db.execute("SELECT runner.pause('CPU', 'power')")
        case "paused board":
            db.execute("SELECT runner.pause_board('identity', 'broken')")
    gpu_type = "H100" if why == "another type" else "CPU"
    assert check(waiting, db, gpu_type=gpu_type, instance="other" if why == "other instance" else None) is None


def test_a_secret_job_whose_public_one_has_run_is_not_given(waiting: Bench, db: Db) -> None:
    """Its file has been evaluated; that of a private submission has not."""
    ranked_id, private_id = waiting.submit(mode="leaderboard"), waiting.submit(mode="private")
    public = waiting.claim_of(ranked_id)
    waiting.store.complete(public, ranked(public))
    job = given(waiting, db)
    assert job.submission_id == private_id
    assert check(waiting, db) is None


def test_a_result_ends_the_job_as_a_run_of_it_would(waiting: Bench, db: Db) -> None:
    """Verdict, rows and the submission's last word; the secret job ends with it, and a repeated result is none."""
    submission_id = waiting.submit(mode="leaderboard")
    job = given(waiting, db)
    assert commit(waiting, job) == Completion(submission_done=True)
    jobs = "SELECT state, verdict, attempt, host, lease_owner FROM runner.job WHERE submission_id = %s ORDER BY id"
    assert rows(db, jobs, submission_id) == [
        ("done", "compile_error", 1, "host-a", None),
        ("done", "compile_error", 0, None, None),
    ]
    runs = "SELECT mode, passed FROM leaderboard.runs WHERE submission_id = %s"
    assert rows(db, runs, submission_id) == [("test", False)]
    assert commit(waiting, job) is None
    assert waiting.idle()


def test_a_result_of_another_submission_is_not_written(waiting: Bench, db: Db) -> None:
    """The job goes on waiting, and no host has it."""
    other = waiting.submit()
    submission_id = waiting.submit(user_id="u2")
    job = given(waiting, db)
    mixed = replace(job, submission_id=other if job.submission_id == submission_id else submission_id)
    assert commit(waiting, mixed) is None
    assert rows(db, "SELECT state FROM runner.job WHERE id = %s", job.id) == [("queued",)]


@pytest.mark.parametrize("faster", ["claim", "claim that came back", "cancel", "delete", "name taken"])
def test_what_was_faster_counts(waiting: Bench, db: Db, faster: str) -> None:
    """A check that comes too late writes nothing."""
    submission_id = waiting.submit()
    job = given(waiting, db)
    match faster:
        case "claim":
            waiting.claim_of(submission_id)
        case "claim that came back":
            waiting.store.release(waiting.claim_of(submission_id), reason="restart")
        case "cancel":
            waiting.store.cancel(submission_id)
        case "delete":
            db.execute("SELECT runner.delete_submission(%s)", (submission_id,))
        case "name taken":
            db.execute("UPDATE runner.host SET instance = 'other' WHERE name = 'host-a'")
    before = rows(db, "SELECT * FROM runner.job ORDER BY id")
    assert commit(waiting, job) is None
    assert rows(db, "SELECT * FROM runner.job ORDER BY id") == before


def test_nothing_waits_for_a_lock(waiting: Bench, db: Db) -> None:
    """The claiming thread of a daemon asks: a held job is passed over, and a result of it is not written."""
    held, free = waiting.submit(), waiting.submit(user_id="other")
    job = given(waiting, db)
    for lock in ("SELECT FROM runner.job WHERE id = %s FOR UPDATE", "SELECT FROM leaderboard.submission FOR UPDATE"):
        with psycopg.connect(waiting.url) as holder:
            holder.execute(lock.encode(), (job.id,) if "%s" in lock else None)
            assert commit(waiting, job) is None
    db.execute("UPDATE runner.job SET checked = false")
    with psycopg.connect(waiting.url) as holder:
        holder.execute("SELECT FROM runner.job WHERE submission_id = %s FOR UPDATE", (held,))
        other = waiting.store.take_check(host="host-a", gpu_types=["CPU"], instance="host-a")
        assert other is not None
        assert other.submission_id == free
    assert commit(waiting, job) == Completion(submission_done=True)
