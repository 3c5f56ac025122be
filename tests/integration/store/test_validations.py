"""Validations of ranked submissions: who is chosen, what is written, what stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from runner.base.errors import NotFoundError, StaleAttemptError, SubmissionError
from runner.base.model import JobResult, JobState, ValidationJob, Verdict
from runner.store.clean import to_jsonb
from runner.store.queries import QUERIES
from runner.store.results import _result
from tests.integration.store.conftest import TASK, Bench, Db, result, rows
from tests.support import sweeps
from tests.support.waiting import PATIENCE_S, wait_until

VALIDATION = {"version": "v1", "source": "print()"}
#: Everything that a validation must leave alone.
UNTOUCHED = (
    "SELECT * FROM runner.ranking ORDER BY leaderboard, rank",
    "SELECT * FROM leaderboard.runs ORDER BY id",
    "SELECT * FROM runner.score ORDER BY run_id",
    "SELECT * FROM leaderboard.submission ORDER BY id",
    "SELECT * FROM leaderboard.submission_job_status ORDER BY submission_id",
    "SELECT * FROM runner.job WHERE sweep_id IS NULL ORDER BY id",
    "SELECT * FROM runner.status ORDER BY submission_id",
    "SELECT * FROM runner.result ORDER BY submission_id, mode",
)
#: Sessions of this database that wait for another one's lock.
WAITS = b"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
RESULTS = "SELECT * FROM leaderboard.submission_validation ORDER BY submission_id"


@pytest.fixture
def board(bench: Bench) -> Bench:
    """A board whose task has a validation."""
    bench.board(task={**TASK, "validation": VALIDATION})
    return bench


def rank(bench: Bench, finish: Callable[..., None], *users: str) -> list[int]:
    """Ranked submissions, the first user's the fastest."""
    ids = []
    for number, user in enumerate(users, 1):
        ids.append(bench.submit(mode="leaderboard", user_id=user))
        finish(score_s=number * 1e-6)
    return ids


def said(passed: int = 3, total: int = 3, **changes: object) -> JobResult:
    """What the daemon makes of a script's line."""
    validation = {
        "contract_version": "v1",
        "passed_shapes": passed,
        "total_shapes": total,
        "fully_validated": passed == total,
        "geomean_sync_wall_speedup": 1.5,
        "result": {"results": [{"n": 1}]},
        **changes,
    }
    return result(report={"validation": validation})


def claim(bench: Bench) -> ValidationJob:
    """The next job, which validates."""
    job = bench.claim()
    assert isinstance(job, ValidationJob)
    return job


def chosen(db: Db, sweep_id: int) -> list[int]:
    """The submissions of a sweep, in its order."""
    query = "SELECT validates FROM runner.job WHERE sweep_id = %s ORDER BY id"
    return [submission_id for (submission_id,) in rows(db, query, sweep_id)]


def test_the_best_of_the_ten_best_users_are_chosen_or_of_all_or_those_without_a_result(
    board: Bench, finish: Callable[..., None], db: Db
) -> None:
    """Not a user's slower ones, nor one whose validation is open. A new version of the script has no results."""
    ids = rank(board, finish, *(f"u{number:02}" for number in range(12)))
    rank(board, finish, *["u00"] * 2)

    def order(**which: bool) -> list[int]:
        return chosen(db, sweeps.validate(board.store, "identity", "CPU", **which)["sweep_id"])

    first = sweeps.validate(board.store, "identity", "cpu")
    assert (first["contract_version"], first["jobs"], chosen(db, first["sweep_id"])) == ("v1", 10, ids[:10])
    assert order(all_users=True) == ids[10:]
    nobody = sweeps.validate(board.store, "identity", "CPU", all_users=True)
    assert (nobody["jobs"], sweeps.validation_progress(board.store, nobody["sweep_id"])["status"]) == (0, "completed")

    for _ in range(12):
        board.store.complete(claim(board), said())
    db.execute("DELETE FROM leaderboard.submission_validation WHERE submission_id = %s", [ids[11]])
    assert order(only_missing=True) == []
    assert order(all_users=True, only_missing=True) == ids[11:]
    db.execute("UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{validation,version}', '\"v2\"')")
    assert board.store.validations(leaderboard="identity") == []
    assert order(only_missing=True) == ids[:10]


def test_what_a_validation_says_is_written_and_changes_nothing_else(
    board: Bench, finish: Callable[..., None], db: Db
) -> None:
    """One completes, one fails, one ends through no fault of its own. No row but theirs differs before and after."""
    ids = rank(board, finish, "a", "b", "c")
    before = [db.execute(query.encode()).fetchall() for query in UNTOUCHED]
    sweep = sweeps.validate(board.store, "identity", "CPU")
    assert sweeps.validation_progress(board.store, sweep["sweep_id"])["status"] == "running"

    board.store.complete(claim(board), said(2, 3))
    board.store.complete(claim(board), result(Verdict.RUNTIME_ERROR, report={"validation": {"contract_version": "v1"}}))
    db.execute("UPDATE runner.retry SET pause_s = 0")
    for _ in range(3):
        last = claim(board)
        ended = board.store.fail(last, error="no device", report=None, slot="0")
        db.execute("UPDATE runner.job SET avoid_until = NULL")
    assert (ended.state, last.validates) == ("done", ids[2])

    found = {row["submission_id"]: row for row in db.execute(RESULTS)}
    assert [found[number]["status"] for number in ids] == ["completed", "failed", "failed"]
    assert found[ids[0]] == found[ids[0]] | {
        "passed_shapes": 2, "total_shapes": 3, "fully_validated": False, "error": None,
        "geomean_sync_wall_speedup": 1.5, "result": {"results": [{"n": 1}]},
    }  # fmt: skip
    assert found[ids[1]]["error"] == "because runtime_error"
    assert "no device" in found[ids[2]]["error"]
    progress = sweeps.validation_progress(board.store, sweep["sweep_id"])
    assert (progress["status"], progress["jobs"], progress["finished"]) == ("completed", 3, 3)
    # A fault of ours is no result that is there.
    assert chosen(db, sweeps.validate(board.store, "identity", "CPU", only_missing=True)["sweep_id"]) == ids[2:]
    assert [db.execute(query.encode()).fetchall() for query in UNTOUCHED] == before


def test_a_later_result_takes_the_place_of_an_earlier_one_but_a_fault_of_ours_does_not(
    board: Bench, finish: Callable[..., None], db: Db
) -> None:
    """One row per submission, GPU type and version; the version is that of the script that ran."""
    rank(board, finish, "a")
    db.execute("UPDATE runner.retry SET max_attempts = 1")
    for outcome in (said(1, 3), said(2, 3), None, said(3, 3, contract_version="v2")):
        sweeps.validate(board.store, "identity", "CPU")
        job = claim(board)
        if outcome is None:
            board.store.fail(job, error="no device", report=None, slot="0")
        else:
            board.store.complete(job, outcome)
    found = [(row["contract_version"], row["status"], row["passed_shapes"]) for row in db.execute(RESULTS)]
    assert sorted(found) == [("v1", "completed", 2), ("v2", "completed", 3)]


def test_users_go_before_a_sweep_and_two_of_it_run_at_a_time(board: Bench, finish: Callable[..., None]) -> None:
    """Whatever waits of anybody is claimed first, and a slot stays free for those who come while a sweep runs.

    A paused leaderboard holds its sweep back, also one that comes back; a resumed one goes on with two.
    """
    rank(board, finish, "a", "b", "c", "d")
    sweeps.validate(board.store, "identity", "CPU")
    late = board.submit(user_id="late", mode="test", priority=-999)
    assert board.claim().submission_id == late
    first, second = claim(board), claim(board)
    assert board.idle()
    board.store.release(second, reason="draining")
    assert claim(board).validates == second.validates
    assert board.idle()
    board.store.complete(first, said())
    third = claim(board)
    assert third.validates not in {first.validates, second.validates}
    assert board.idle()
    board.store.pause_board("identity", reason="look")
    board.store.release(third, reason="draining")
    assert board.idle()
    board.store.resume_board("identity")
    assert claim(board).validates == third.validates
    assert board.idle()


def test_of_two_that_end_together_the_second_completes_the_sweep(
    board: Bench, finish: Callable[..., None], database_url: str
) -> None:
    """It waits until the first is committed, and then sees that none is left."""
    rank(board, finish, "a", "b")
    sweep = sweeps.validate(board.store, "identity", "CPU")
    first, second = claim(board), claim(board)
    other = board.other()
    with psycopg.connect(database_url, autocommit=True) as watch, ThreadPoolExecutor(1) as thread:
        with psycopg.connect(database_url) as connection:
            connection.execute(QUERIES["complete"].sql, {"results": to_jsonb([_result(first, said())])})
            late = thread.submit(other.complete, second, said())
            wait_until(lambda: watch.execute(WAITS).fetchone() == (1,), "the second one waits")
            assert sweeps.validation_progress(board.store, sweep["sweep_id"])["finished"] == 0
        late.result(PATIENCE_S)
    other.close()
    progress = sweeps.validation_progress(board.store, sweep["sweep_id"])
    assert (progress["status"], progress["finished"]) == ("completed", 2)
    assert len(board.store.validations(sweep_id=sweep["sweep_id"])) == 2


def test_a_deleted_submission_takes_its_validation_along(
    board: Bench, finish: Callable[..., None], db: Db, database_url: str
) -> None:
    """KernelBot's own statement too. The sweep ends all the same, also without any job, and a late result is stale."""
    ids = rank(board, finish, "a", "b")
    sweep = sweeps.validate(board.store, "identity", "CPU")
    board.store.complete(claim(board), said())
    last = claim(board)
    for gone, left in ((ids[1], ids[:1]), (ids[0], [])):
        with psycopg.connect(database_url) as kernelbot:
            kernelbot.execute("DELETE FROM leaderboard.runs WHERE submission_id = %s", [gone])
            kernelbot.execute("DELETE FROM leaderboard.submission WHERE id = %s", [gone])
        assert sweeps.validation_progress(board.store, sweep["sweep_id"])["status"] == "completed"
        assert [row["submission_id"] for row in db.execute(RESULTS)] == left
    with pytest.raises(StaleAttemptError):
        board.store.complete(last, said())
    statuses = []
    for started in ("23 hours", "25 hours"):
        db.execute("UPDATE leaderboard.validation_sweep SET started_at = now() - %s::interval", [started])
        db.execute("UPDATE runner.sweep SET looked_at = '-infinity', swept_at = '-infinity'")
        board.store.reclaim()
        statuses += rows(db, "SELECT status FROM leaderboard.validation_sweep")
    assert statuses == [("running",), ("completed",)]


def test_a_cancelled_sweep_stops_and_keeps_its_results(board: Bench, finish: Callable[..., None], db: Db) -> None:
    """What waits ends, what runs is asked to stop, and whoever was left out may be ordered again."""
    ids = rank(board, finish, "a", "b", "c")
    sweep = sweeps.validate(board.store, "identity", "CPU")
    board.store.complete(claim(board), said())
    running = claim(board)
    assert sweeps.cancel_validations(board.store, sweep["sweep_id"]) == 2
    assert board.idle()
    (held,) = board.store.heartbeat(host="host-a", lease_s=60, held=[(running.id, running.attempt)])
    assert (held.ours, held.cancel_requested) == (True, True)
    assert board.store.cancelled(running).state is JobState.CANCELLED
    assert rows(db, "SELECT status, error FROM leaderboard.validation_sweep") == [("failed", "cancelled")]
    assert sweeps.validation_progress(board.store, sweep["sweep_id"])["status"] == "failed"
    assert sweeps.cancel_validations(board.store, sweep["sweep_id"]) == 0
    assert [line.submission_id for line in board.store.validations(sweep_id=sweep["sweep_id"])] == ids[:1]
    assert chosen(db, sweeps.validate(board.store, "identity", "CPU", only_missing=True)["sweep_id"]) == ids[1:]
    with pytest.raises(NotFoundError, match="validation sweep 99 does not exist"):
        sweeps.cancel_validations(board.store, 99)


def test_what_cannot_be_validated_is_refused(board: Bench, db: Db) -> None:
    """By a sentence that says how to mend it; a database of an older KernelBot lacks the tables, and works without."""
    board.board("plain")
    board.board("draft", task={**TASK, "validation": {"version": "1", "main": "v.py"}})
    for name, gpu, sentence in (
        ("nothing", "CPU", "leaderboard 'nothing' does not exist"),
        ("plain", "CPU", "the task of leaderboard 'plain' has no validation"),
        ("draft", "CPU", "the task of leaderboard 'draft' has no validation"),
        ("identity", "H100", "GPU type 'H100' is not offered"),
    ):
        with pytest.raises(SubmissionError, match=sentence):
            sweeps.validate(board.store, name, gpu)
    db.execute("DROP TABLE leaderboard.validation_sweep, leaderboard.submission_validation")
    with pytest.raises(SubmissionError, match="this database has no tables for validations"):
        sweeps.validate(board.store, "identity", "CPU")
    assert board.store.validations(leaderboard="identity") == []
    assert sweeps.validation_progress(board.store, 1)["status"] is None
    db.execute("UPDATE runner.sweep SET swept_at = '-infinity'")
    assert board.store.reclaim() == []
