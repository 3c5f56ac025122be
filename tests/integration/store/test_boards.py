"""Leaderboards and rankings."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from runner.errors import BoardError, NotFoundError
from runner.model import Json, Verdict
from tests.integration.store.conftest import TASK, Bench, ranked
from tests.integration.store.test_submit import one

Db = psycopg.Connection[dict[str, Any]]


def places(bench: Bench, gpu_type: str | None = None) -> list[tuple[int, str, str, float]]:
    """The ranking of the board `identity`, short."""
    return [
        (line.rank, line.gpu_type, line.user_id, line.score_s) for line in bench.store.ranking("identity", gpu_type)
    ]


def test_the_ranking_holds_the_best_valid_score_of_every_user(bench: Bench, finish: Callable[..., None]) -> None:
    """Per GPU type: fastest first, one line per user, only where the secret run passed too."""
    bench.board("identity", "A100", "H100")
    for user, score, secret in (("a", 3e-6, True), ("a", 2e-6, True), ("a", 1e-6, False), ("b", 2.5e-6, True)):
        bench.submit(user_id=user, mode="leaderboard", gpu_types=["A100"])
        finish("A100", score_s=score, secret=secret)
    bench.submit(user_id="b", mode="leaderboard", gpu_types=["H100"])
    finish("H100", score_s=9e-7)
    bench.submit(user_id="c", mode="leaderboard", gpu_types=["H100"])
    finish("H100", public=False)
    assert places(bench) == [(1, "A100", "a", 2e-6), (2, "A100", "b", 2.5e-6), (1, "H100", "b", 9e-7)]
    assert places(bench, "H100") == [(1, "H100", "b", 9e-7)]
    own = bench.store.personal("identity", "a")
    assert [(line.rank, line.score_s) for line in own] == [(1, 2e-6), (2, 3e-6)]


def test_a_score_counts_only_once_the_secret_run_has_passed(bench: Bench) -> None:
    """Between the twins' ends the public score is there but not on the board."""
    bench.board()
    bench.submit(mode="leaderboard")
    public, secret = bench.claim(), bench.claim()
    bench.store.complete(public, ranked(public))
    assert places(bench) == []
    bench.store.complete(secret, ranked(secret))
    assert places(bench) == [(1, "CPU", "u1", 2.5e-6)]


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE leaderboard.submission SET status = 'hacked'",
        "UPDATE leaderboard.submission_job_status SET status = 'hacked'",
        "UPDATE leaderboard.runs SET passed = false WHERE secret AND mode = 'test'",
        "DELETE FROM leaderboard.runs WHERE secret AND mode = 'leaderboard'",
    ],
)
def test_what_kernelbot_takes_out_is_out(bench: Bench, db: Db, finish: Callable[..., None], spoil: str) -> None:
    """Hacked, any secret row failed there, or no secret ranked row: not ranked."""
    bench.board()
    bench.submit(mode="leaderboard")
    finish()
    assert len(places(bench)) == 1
    db.execute(spoil.encode())
    assert places(bench) == []


def test_equal_scores_rank_the_earlier_submission_first(bench: Bench, finish: Callable[..., None]) -> None:
    """Who was first keeps the place."""
    bench.board()
    for user in ("b", "a"):
        bench.submit(user_id=user, mode="leaderboard")
        finish()
    assert [(rank, user) for rank, _, user, _ in places(bench)] == [(1, "b"), (2, "a")]


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


def test_bad_boards_are_refused(bench: Bench) -> None:
    """A taken or empty name, no or doubled GPU types, a deadline without zone: each says what to do."""
    bench.board()
    with pytest.raises(BoardError, match="'identity' exists already"):
        bench.board()
    with pytest.raises(BoardError, match="expected visible text"):
        bench.board(" ")
    with pytest.raises(BoardError, match="no GPU type"):
        bench.board("x", gpus=())
    with pytest.raises(BoardError, match="named twice"):
        bench.board("x", "A100", "A100")
    with pytest.raises(BoardError, match="no time zone"):
        bench.board("x", deadline=datetime(2030, 1, 1))  # noqa: DTZ001 the missing zone is the subject
    for call in (
        lambda: bench.store.board("nope"),
        lambda: bench.store.delete_board("nope"),
        lambda: bench.store.ranking("nope"),
        lambda: bench.store.personal("nope", "u"),
    ):
        with pytest.raises(NotFoundError, match="'nope' does not exist"):
            call()


def test_an_update_that_breaks_comparison_needs_force(bench: Bench) -> None:
    """Deadline, description and GPU types may change any time; benchmarks under submissions only by force."""
    bench.board()
    changes: dict[str, Any] = {
        "name": "identity",
        "deadline": datetime.now(UTC) + timedelta(days=9),
        "description": "New.",
        "gpus": ["CPU", "H100"],
        "templates": {},
        "extra": None,
    }
    harder = {**TASK, "benchmarks": [{"size": 1024, "seed": 2}]}
    bench.store.update_board(**changes, task=harder)
    bench.submit(gpu_types=["H100"])
    bench.store.update_board(**changes, task={**harder, "test_timeout": 99})
    with pytest.raises(BoardError, match="1 submissions and benchmarks would change"):
        bench.store.update_board(**changes, task=TASK)
    assert bench.store.board("identity").task["benchmarks"] == harder["benchmarks"]
    bench.store.update_board(**{**changes, "gpus": ["H100"]}, task=TASK, force=True)
    view = bench.store.board("identity")
    assert (view.task, view.gpus, view.templates, view.description) == (TASK, ("H100",), {}, "New.")
    with pytest.raises(NotFoundError, match="'nope'"):
        bench.store.update_board(**{**changes, "name": "nope"}, task=TASK)


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
    """Who evaluates, what a submission sees, and what is timed on a GPU type that the board has; nothing else."""
    task = {**TASK, "files": {**TASK["files"], TASK["config"]["main"]: "@HARNESS@"}}
    board: dict[str, Any] = {
        "name": "identity",
        "deadline": datetime.now(UTC) + timedelta(days=9),
        "description": "",
        "gpus": ["CPU"],
        "templates": {},
        "task": task,
    }
    bench.store.sync_gpu_types([("CPU", "none", (), "")])
    bench.store.create_board(**board, extra=before)
    bench.store.update_board(**board, extra={"harness": "program"})
    bench.store.update_board(**board, extra=before)
    bench.submit()
    if named is None:
        bench.store.update_board(**board, extra=after)
    else:
        with pytest.raises(BoardError, match=f"1 submissions and {re.escape(named)} would change"):
            bench.store.update_board(**board, extra=after)
        assert bench.store.board("identity").extra == before
        bench.store.update_board(**board, extra=after, force=True)
    assert bench.store.board("identity").extra == after


def test_deleting_a_board_with_submissions_needs_force(bench: Bench, db: Db, finish: Callable[..., None]) -> None:
    """By force everything on it goes, and other boards stay."""
    bench.board()
    bench.board("other")
    bench.submit(mode="leaderboard")
    kept = bench.submit(leaderboard="other")
    finish()
    with pytest.raises(BoardError, match="has 1 submissions"):
        bench.store.delete_board("identity")
    bench.store.delete_board("identity", force=True)
    assert [line.name for line in bench.store.boards()] == ["other"]
    assert one(db, "SELECT array_agg(id) AS ids FROM leaderboard.submission")["ids"] == [kept]
    assert bench.store.submission(kept).verdict is Verdict.ACCEPTED
