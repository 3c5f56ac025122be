"""Leaderboards and rankings."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from runner.base.errors import BoardError, NotFoundError, SubmissionError
from runner.base.model import Json, Verdict
from runner.extras.boards.store import EVALUATOR
from tests.integration.store.conftest import TASK, Bench, Db, count, one, ranked, rows, value
from tests.support.waiting import PATIENCE_S, wait_until


def places(bench: Bench, gpu_type: str | None = None) -> list[tuple[int, str, str, float]]:
    """The ranking of the board `identity`, short."""
    return [
        (line.rank, line.gpu_type, line.user_id, line.score_s) for line in bench.store.ranking("identity", gpu_type)
    ]


def test_the_ranking_holds_the_best_valid_score_of_every_user(bench: Bench, finish: Callable[..., None]) -> None:
    """Per GPU type: fastest first, one line per user, only where the secret run passed too.

    Equal scores share a rank, as in KernelBot's API and data sets; who was first stands first.
    """
    bench.board("identity", "A100", "H100")
    scores = (("a", 3e-6, True), ("a", 2e-6, True), ("a", 1e-6, False), ("d", 2.5e-6, True), ("b", 2.5e-6, True))
    for user, score, secret in scores:
        bench.submit(user_id=user, mode="leaderboard", gpu_types=["A100"])
        finish("A100", score_s=score, secret=secret)
    bench.submit(user_id="b", mode="leaderboard", gpu_types=["H100"])
    finish("H100", score_s=9e-7)
    bench.submit(user_id="c", mode="leaderboard", gpu_types=["H100"])
    finish("H100", public=False)
    assert places(bench) == [
        (1, "A100", "a", 2e-6),
        (2, "A100", "d", 2.5e-6),
        (2, "A100", "b", 2.5e-6),
        (1, "H100", "b", 9e-7),
    ]
    assert places(bench, "H100") == [(1, "H100", "b", 9e-7)]


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE leaderboard.submission SET status = 'hacked'",
        "UPDATE leaderboard.submission_job_status SET status = 'hacked'",
        "UPDATE leaderboard.runs SET passed = false WHERE secret AND mode = 'test'",
        "DELETE FROM leaderboard.runs WHERE secret AND mode = 'leaderboard'",
        "DELETE FROM leaderboard.runs WHERE secret",
    ],
)
def test_what_kernelbot_takes_out_is_out(queue: Bench, db: Db, finish: Callable[..., None], spoil: str) -> None:
    """Hacked, any secret row failed there, or no secret ranked row: not ranked."""
    queue.submit(mode="leaderboard")
    finish()
    assert len(places(queue)) == 1
    db.execute(spoil.encode())
    assert places(queue) == []


def test_a_board_comes_back_as_it_was_made(bench: Bench, db: Db) -> None:
    """Every part of a leaderboard is stored and shown; KernelBot's columns hold KernelBot's values."""
    extra = {"harness": "program", "cases": {"CPU": {"tests": []}}}
    board_id = bench.board("identity", "H100", "A100", extra=extra, templates={"Python": "a", "CUDA": "b"})
    view = bench.store.board("identity")
    assert (view.id, view.task, view.extra, view.gpus) == (board_id, TASK, extra, ("A100", "H100"))
    assert (view.templates, view.description) == ({"Python": "a", "CUDA": "b"}, "Return the input.")
    assert (view.visibility, view.creator_id, view.forum_id, view.submissions) == ("public", -1, 0, 0)
    assert 0 <= one(db, "SELECT secret_seed FROM leaderboard.leaderboard")["secret_seed"] < 2**31
    assert one(db, "SELECT harness FROM runner.board")["harness"] == "program"
    (line,) = bench.store.boards()
    assert (line.name, line.gpus, line.submissions) == ("identity", ("A100", "H100"), 0)


def test_bad_boards_are_refused(queue: Bench) -> None:
    """A taken or empty name, no or doubled GPU types, a deadline without zone: each says what to do."""
    with pytest.raises(BoardError, match="'identity' exists already"):
        queue.board()
    with pytest.raises(BoardError, match="expected visible text"):
        queue.board(" ")
    with pytest.raises(BoardError, match="no GPU type"):
        queue.board("x", gpus=())
    with pytest.raises(BoardError, match="named twice"):
        queue.board("x", "A100", "A100")
    with pytest.raises(BoardError, match="no time zone"):
        queue.board("x", deadline=datetime(2030, 1, 1))  # noqa: DTZ001 the missing zone is the subject
    for call in (
        lambda: queue.store.board("nope"),
        lambda: queue.store.delete_board("nope"),
        lambda: queue.store.ranking("nope"),
    ):
        with pytest.raises(NotFoundError, match="'nope' does not exist"):
            call()


def test_an_update_that_breaks_comparison_needs_force(queue: Bench) -> None:
    """Deadline, description and GPU types may change any time; benchmarks under submissions only by force."""
    both = ("identity", "CPU", "H100")
    harder = {**TASK, "benchmarks": [{"size": 1024, "seed": 2}]}
    queue.update_board(*both, task=harder)
    queue.submit(gpu_types=["H100"])
    queue.update_board(*both, task={**harder, "test_timeout": 99}, deadline=datetime.now(UTC) + timedelta(days=9))
    with pytest.raises(BoardError, match="1 submissions and benchmarks would change"):
        queue.update_board(*both)
    assert queue.store.board("identity").task["benchmarks"] == harder["benchmarks"]
    queue.update_board("identity", "H100", templates={}, description="New.", force=True)
    view = queue.store.board("identity")
    assert (view.task, view.gpus, view.templates, view.description) == (TASK, ("H100",), {}, "New.")
    with pytest.raises(NotFoundError, match="'nope'"):
        queue.update_board("nope")


CPU_BENCHMARKS = {"CPU": {"benchmarks": [{"size": 5, "seed": 2}]}}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({}, {"harness": "program"}, "runner.yml: harness"),
        ({"private": ["hidden.py"]}, {"private": []}, "runner.yml: private"),
        ({}, {"cases": CPU_BENCHMARKS}, "runner.yml: cases.CPU.benchmarks"),
        ({"cases": CPU_BENCHMARKS}, None, "runner.yml: cases.CPU.benchmarks"),
        ({"harness": "program"}, {"cases": CPU_BENCHMARKS}, "runner.yml: harness, runner.yml: cases.CPU.benchmarks"),
        # What leaves the scores what they were.
        ({}, {"harness": "builtin"}, None),
        ({}, {"cases": {"CPU": {"tests": [{"size": 8, "seed": 2}]}}}, None),
        ({}, {"cases": {"CPU": {"benchmarks": TASK["benchmarks"]}}}, None),
        ({}, {"cases": {"H100": {"benchmarks": []}}}, None),
        ({"private": ["a.py", "b.py"]}, {"private": ["b.py", "a.py"], "bytes": "4 * size"}, None),
    ],
)
def test_what_runner_yml_changes_under_submissions_needs_force_too(
    bench: Bench, before: Json, after: Json | None, named: str | None
) -> None:
    """What a submission sees, and what is timed on a GPU type that the board has; who evaluates stays, by force too."""
    task = {**TASK, "files": {**TASK["files"], TASK["config"]["main"]: "@HARNESS@"}}
    bench.store.sync_gpu_types([("CPU", "none", (), "")])
    bench.board(task=task, extra=before)
    bench.update_board(task=task, extra={"harness": "program"})
    bench.update_board(task=task, extra=before)
    bench.submit()
    if named is None:
        bench.update_board(task=task, extra=after)
    elif EVALUATOR in named:
        for force in (False, True):
            with pytest.raises(BoardError, match="1 submissions, and another evaluator would decide"):
                bench.update_board(task=task, extra=after, force=force)
        after = before
    else:
        with pytest.raises(BoardError, match=f"1 submissions and {re.escape(named)} would change"):
            bench.update_board(task=task, extra=after)
        assert bench.store.board("identity").extra == before
        bench.update_board(task=task, extra=after, force=True)
    assert bench.store.board("identity").extra == after


def test_a_submission_that_is_being_stored_counts(queue: Bench, db: Db) -> None:
    """An update waits for it, and is then refused as if it had come later."""
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leaderboard%FOR UPDATE%'"
    with psycopg.connect(queue.url) as stores, ThreadPoolExecutor(1) as thread:
        stores.execute("SELECT runner.submit('identity', 'u1', 'a.py', 'pass', 'test')")
        update = thread.submit(queue.update_board, task={**TASK, "benchmarks": [{"size": 9, "seed": 2}]})
        wait_until(lambda: db.execute(waits.encode()).fetchall() or update.done(), "the update waits for a lock")
        stores.commit()
        with pytest.raises(BoardError, match="1 submissions"):
            update.result(PATIENCE_S)


def test_deleting_a_board_with_submissions_needs_force(queue: Bench, db: Db, finish: Callable[..., None]) -> None:
    """By force everything on it goes, its files too, but not those that another board has; other boards stay."""
    queue.board("other")
    queue.submit(mode="leaderboard", code=b"only here")
    queue.submit(code=b"everywhere")
    kept = queue.submit(code=b"everywhere", leaderboard="other")
    finish()
    with pytest.raises(SubmissionError, match="has 2 submissions"):
        queue.store.delete_board("identity")
    queue.store.delete_board("identity", force=True)
    assert [line.name for line in queue.store.boards()] == ["other"]
    assert one(db, "SELECT array_agg(id) AS ids FROM leaderboard.submission")["ids"] == [kept]
    assert rows(db, "SELECT code FROM leaderboard.code_files") == [(b"everywhere",)]
    assert queue.store.submission(kept).status.verdict is Verdict.ACCEPTED


def test_a_large_board_goes_in_batches(queue: Bench, db: Db) -> None:
    """Of a hundred submissions, each a transaction of its own; meanwhile the board takes nothing new."""
    queue.board("other")
    db.execute(
        "SELECT runner.submit('identity', 'u' || n, 'x.py', 'pass', 'leaderboard') FROM generate_series(1, 101) n"
    )
    job = queue.claim()
    queue.store.complete(job, ranked(job))
    kept = queue.submit(leaderboard="other")
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%delete_board%'"
    with psycopg.connect(queue.url) as holds, closing(queue.other()) as store, ThreadPoolExecutor(1) as thread:
        holds.execute("SELECT FROM leaderboard.submission WHERE id = 101 FOR UPDATE")
        deletion = thread.submit(store.delete_board, "identity", force=True)
        wait_until(lambda: db.execute(waits.encode()).fetchall(), "the deletion waits for a lock")
        assert rows(db, "SELECT id FROM leaderboard.submission ORDER BY id") == [(101,), (kept,)]
        with pytest.raises(SubmissionError, match="closed at"):
            queue.submit()
        holds.rollback()
        deletion.result(PATIENCE_S)
    assert [line.name for line in queue.store.boards()] == ["other"]
    assert (count(db, "runner", "job"), count(db, "runner", "score")) == (1, 0)


def test_a_claim_does_not_wait_for_a_deletion(queue: Bench, db: Db) -> None:
    """It takes another leaderboard's job while the transaction that deletes is open, and passes over those deleted."""
    queue.board("other")
    for number in range(3):
        queue.submit(user_id=f"u{number}")
    kept = queue.submit(user_id="u9", leaderboard="other")
    with db.transaction():
        for _ in range(2):
            assert value(db, "SELECT runner.delete_board('identity', true)") == 3
        claims = queue.store.claim(host="h", slots={"CPU": 4}, lease_s=60)
        assert [job.submission_id for job in claims.jobs] == [kept]
    assert queue.store.claim(host="h", slots={"CPU": 4}, lease_s=60).jobs == ()


def test_every_row_that_goes_with_a_submission_is_found_by_an_index(db: Db) -> None:
    """Each foreign key that a deletion follows begins an index; without one it would walk the table each time."""
    keys = """
        SELECT c.conrelid::regclass::text AS referring, c.conkey[1] AS column_number
        FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
        WHERE c.contype = 'f' AND c.confrelid = ANY (ARRAY[
            'leaderboard.submission', 'leaderboard.runs', 'leaderboard.code_files', 'runner.job']::regclass[])
          AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1]
                          AND i.indisvalid AND (i.indpred IS NULL OR c.conrelid = 'runner.job'::regclass
                               OR pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)))
    """
    assert db.execute(keys.encode()).fetchall() == []


def test_the_ranking_has_scores_of_other_programs(bench: Bench, db: Db, finish: Callable[..., None]) -> None:
    """At once, and after they have been copied; what is changed there counts as it is now."""
    board_id = bench.board()
    bench.submit(mode="leaderboard", user_id="a")
    finish(score_s=5e-6)
    assert count(db, "runner", "score") == 1, "ours is copied with its commit"
    db.execute("INSERT INTO leaderboard.user_info (id) VALUES ('k')")

    def theirs(score_s: float) -> int:
        made: int = value(
            db,
            "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)"
            " SELECT %s, 'k.py', 'k', id, now(), true FROM leaderboard.code_files RETURNING id",
            board_id,
        )
        db.execute(
            "INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,"
            " system_info) SELECT %s, now(), now(), 'leaderboard', x, 'CPU', %s, true, '{}'"
            " FROM unnest(ARRAY[false, true]) x",
            (made, score_s),
        )
        return made

    first = theirs(3e-6)
    assert places(bench) == [(1, "CPU", "k", 3e-6), (2, "CPU", "a", 5e-6)]
    for _ in range(3):
        db.execute("UPDATE runner.score_mark SET noted_at = '-infinity'")
        db.execute("SELECT runner.keep_scores(100)")
    assert count(db, "runner", "score") == 2
    assert places(bench) == [(1, "CPU", "k", 3e-6), (2, "CPU", "a", 5e-6)]
    theirs(2e-6)
    assert places(bench) == [(1, "CPU", "k", 2e-6), (2, "CPU", "a", 5e-6)]
    db.execute("UPDATE leaderboard.submission SET status = 'hacked' WHERE id > %s", (first,))
    assert places(bench) == [(1, "CPU", "k", 3e-6), (2, "CPU", "a", 5e-6)]
    db.execute("DELETE FROM leaderboard.runs WHERE submission_id = %s", (first,))
    assert places(bench) == [(1, "CPU", "a", 5e-6)]


def test_a_row_of_an_open_transaction_is_not_passed_over(queue: Bench, db: Db, finish: Callable[..., None]) -> None:
    """The mark moves to what was there an hour ago, so an earlier id that is committed later is still looked for."""
    queue.submit(mode="leaderboard")
    finish()
    db.execute("DELETE FROM runner.score")
    db.execute("UPDATE runner.score_mark SET run_id = 0, next_id = 0, noted_at = now() - interval '59 minutes'")
    assert value(db, "SELECT runner.keep_scores(100)") is False
    assert value(db, "SELECT next_id FROM runner.score_mark") == 0
    db.execute("UPDATE runner.score_mark SET noted_at = now() - interval '61 minutes'")
    db.execute("SELECT runner.keep_scores(100)")
    last = value(db, "SELECT max(id) FROM leaderboard.runs")
    assert rows(db, "SELECT run_id, next_id FROM runner.score_mark") == [(0, last)]
    assert len(places(queue)) == 1
    db.execute("UPDATE runner.score_mark SET noted_at = now() - interval '61 minutes'")
    assert value(db, "SELECT runner.keep_scores(100)") is True
    assert count(db, "runner", "score") == 1
    assert len(places(queue)) == 1


def test_the_cap_on_open_jobs_holds_per_user_and_board(queue: Bench, db: Db) -> None:
    """A ranked submission is two jobs; what is over makes room, and no cap is the default."""
    queue.board("other")
    for _ in range(4):
        queue.submit()
    db.execute("SELECT runner.set_open_jobs('identity', 5)")
    with pytest.raises(SubmissionError, match="4 of 5 jobs that may be open on leaderboard 'identity' are"):
        queue.submit(mode="leaderboard")
    queue.submit()
    for user, board in (("u1", "other"), ("u2", "identity")):
        queue.submit(user_id=user, leaderboard=board)
    with pytest.raises(SubmissionError, match="5 of 5"):
        queue.submit()
    queue.store.cancel(1)
    queue.submit()
    db.execute("SELECT runner.set_open_jobs('identity', NULL)")
    queue.submit(mode="leaderboard")
    with pytest.raises(psycopg.Error, match="expected 1 or more"):
        db.execute("SELECT runner.set_open_jobs('identity', 0)")
    with pytest.raises(psycopg.Error, match="'nope' does not exist"):
        db.execute("SELECT runner.set_open_jobs('nope', 1)")
