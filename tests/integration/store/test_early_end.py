"""The secret job of a ranked submission waits for its public job: it runs if that is accepted, else it ends with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.base.model import JobState, Verdict
from tests.integration.store.conftest import Bench, Db, one, ranked, result, rows


def jobs(db: Db, submission_id: int) -> list[tuple[Any, ...]]:
    """(secret, state, verdict, attempt) of each job, in order."""
    query = "SELECT secret, state, verdict, attempt FROM runner.job WHERE submission_id = %s ORDER BY id"
    return rows(db, query, submission_id)


def words(db: Db, submission_id: int) -> tuple[Any, ...]:
    """(done, job status, error, verdict) as frontends see them."""
    query = "SELECT done, job_status, error, verdict FROM runner.status WHERE submission_id = %s"
    return tuple(one(db, query, submission_id).values())


def test_what_is_not_accepted_ends_its_secret_job_in_the_same_commit(queue: Bench, db: Db) -> None:
    """The secret job has the same verdict, no attempt and no rows; the answer to the commit says that all is over."""
    for verdict in set(Verdict) - {Verdict.ACCEPTED}:
        submission_id = queue.submit(mode="leaderboard")
        public = queue.claim()
        assert queue.idle()
        assert queue.store.complete(public, result(verdict)).submission_done
        assert jobs(db, submission_id) == [(False, "done", verdict, 1), (True, "done", verdict, 0)]
        assert queue.idle()
        done, status, error, shown = words(db, submission_id)
        assert (done, shown) == (True, verdict)
        assert status == ("hacked" if verdict is Verdict.REJECTED else "failed")
        assert "secret" not in error


def test_what_is_accepted_lets_its_secret_job_begin_at_its_own_place(queue: Bench, db: Db) -> None:
    """Ahead of what was submitted later by the same user; the submission is over when both are."""
    submission_id = queue.submit(mode="leaderboard")
    later = queue.submit(mode="leaderboard")
    public = queue.claim()
    assert not queue.store.complete(public, ranked(public)).submission_done
    assert words(db, submission_id)[:2] == (False, "pending")
    secret = queue.claim_of(submission_id)
    assert secret.secret
    assert queue.store.complete(secret, ranked(secret)).submission_done
    assert words(db, submission_id) == (True, "succeeded", None, "accepted")
    assert not queue.claim_of(later).secret


@pytest.mark.parametrize("end", ["cancelled while it runs", "cancelled", "expired"])
def test_a_submission_that_is_cancelled_or_expires_ends_as_a_whole(queue: Bench, db: Db, end: str) -> None:
    """Whether it runs or waits; its state is `cancelled`, as before."""
    submission_id = queue.submit(mode="leaderboard", expires_at=datetime.now(UTC) + timedelta(hours=1))
    if end == "expired":
        db.execute("UPDATE runner.job SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL")
        (taken,) = queue.store.reclaim()
        assert (taken.submission_id, taken.submission_done) == (submission_id, True)
    else:
        running = [queue.claim()] if end == "cancelled while it runs" else []
        queue.store.cancel(submission_id)
        assert all(queue.store.cancelled(public).submission_done for public in running)
    assert [job[1] for job in jobs(db, submission_id)] == ["cancelled", "cancelled"]
    assert queue.store.submission(submission_id).status.state is JobState.CANCELLED
    assert words(db, submission_id)[0]


def test_a_secret_job_does_not_expire_beside_its_public_one(queue: Bench, db: Db) -> None:
    """What a host has begun in time is evaluated whole."""
    submission_id = queue.submit(mode="leaderboard", expires_at=datetime.now(UTC) + timedelta(hours=1))
    public = queue.claim()
    assert rows(db, "SELECT expires_at FROM runner.job WHERE expires_at IS NOT NULL") == []
    queue.store.complete(public, ranked(public))
    assert queue.claim_of(submission_id).secret


def test_a_start_time_is_that_of_both(queue: Bench, db: Db) -> None:
    """The secret job has no start time of its own, so no claim looks for one."""
    submission_id = queue.submit(mode="leaderboard", start_at=datetime.now(UTC) + timedelta(hours=1))
    assert queue.idle()
    db.execute("UPDATE runner.job SET not_before = now() - interval '1 s' WHERE not_before IS NOT NULL")
    assert queue.overdue()
    queue.store.reclaim()
    assert not queue.overdue()
    public = queue.claim()
    assert queue.idle()
    queue.store.complete(public, ranked(public))
    assert queue.claim_of(submission_id).secret


def test_a_paused_leaderboard_holds_back_what_would_follow(queue: Bench) -> None:
    """A secret job whose public one ends during the pause waits for its end, and resuming frees no other."""
    first = queue.submit(mode="leaderboard")
    public = queue.claim()
    second = queue.submit(mode="leaderboard", user_id="u2")
    queue.store.pause_board("identity", reason="x")
    queue.store.complete(public, ranked(public))
    assert queue.idle()
    queue.store.resume_board("identity")
    taken = [queue.claim(), queue.claim()]
    assert [(job.submission_id, job.secret) for job in taken] == [(first, True), (second, False)]
    assert queue.idle()


def test_gpu_types_do_not_wait_for_each_other(bench: Bench, db: Db) -> None:
    """A secret job follows the public job of its own GPU type; the last job of all ends the submission."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(mode="leaderboard", gpu_types=["A100", "H100"])
    slow, quick = bench.claim("A100"), bench.claim("H100")
    assert not bench.store.complete(quick, ranked(quick)).submission_done
    secret = bench.claim("H100")
    assert bench.idle("A100")
    assert not bench.store.complete(slow, ranked(slow, passed=False)).submission_done
    assert bench.store.complete(secret, ranked(secret)).submission_done
    ends = {(secret, "done", verdict) for secret in (False, True) for verdict in ("accepted", "wrong_answer")}
    assert {job[:3] for job in jobs(db, submission_id)} == ends
