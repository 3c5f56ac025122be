"""The views and the shipped queries, as a login that only reads uses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from typing import Any

import pandas as pd
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.extras.data.conftest import CANARIES, SECRET_SEED, Filler, Oddities, may_read_code
from tests.integration.store.conftest import Bench, Db, bench, finish, store

__all__ = ["bench", "finish", "store"]

QUERIES = resources.files("runner.extras.data").joinpath("shipped", "queries.sql").read_text(encoding="utf-8")
VIEWS = ("submissions", "ranking", "progression", "quality", "runs", "leaderboards")
BANNERS = [
    "LIST ALL PROBLEMS",
    "CHECK SUBMISSION COUNTS FOR A PROBLEM",
    "EXPORT DEDUPLICATED SUBMISSIONS WITH CODE",
    "GET TOP N SUBMISSIONS",
    "GET USER PROGRESSION OVER TIME",
]


def sections() -> dict[str, str]:
    """Banner -> query."""
    pieces = re.split(r"-- =+\n-- ([A-Z ]+)\n-- =+\n", QUERIES)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def edited(query: str, oddities: Oddities) -> str:
    """With the leaderboard and the user of the test."""
    return re.sub(r"\b595\b", str(oddities.board), query).replace("gau.nernst", "User0")


def test_a_read_only_login_reads_the_views_and_no_secret(oddities: Oddities, database_url: str, login: str) -> None:
    """Nor tokens, addresses, output, or names of hosts."""
    told = ""
    with psycopg.connect(login) as connection:
        for view in VIEWS:
            found = connection.execute(f"TABLE runner.dataset_{view}".encode()).fetchall()
            assert found, view
            told += repr(found)
    for name, canary in CANARIES.items():
        assert canary not in told, name
    assert str(SECRET_SEED) not in told


def test_the_ranking_has_equal_ranks_and_no_unusable_score(filler: Filler, db: Db) -> None:
    """Per runner, the best of each user; as rank() counts."""
    board = filler.board("gemv")
    scores = {"ada": ("0.003", "0.001"), "bob": ("0.001",), "cyd": ("0.002",), "dee": ("-1",)}
    for user, own in scores.items():
        filler.user(user)
        for score in own:
            filler.ranked(board, user, f"{user}{score}".encode(), score, result={})
    found = db.execute("SELECT * FROM runner.dataset_ranking ORDER BY rank, user_id").fetchall()
    assert [(row["rank"], row["user_id"], row["score"], row["submissions"]) for row in found] == [
        (1, "ada", 0.001, 2),
        (1, "bob", 0.001, 1),
        (3, "cyd", 0.002, 1),
    ]


def test_the_progression_has_every_attempt(filler: Filler, db: Db) -> None:
    """In the order of time, with the best so far per runner; attempts that do not rank are there without a score."""
    board = filler.board("gemv")
    filler.user("ada")
    for score in ("0.003", "0.001", "NaN", "0.002"):
        filler.ranked(board, "ada", score.encode(), score, result={})
    found = db.execute("SELECT * FROM runner.dataset_progression ORDER BY submission_time").fetchall()
    assert [(row["score"], row["passed"], row["best_so_far"]) for row in found] == [
        (0.003, True, 0.003),
        (0.001, True, 0.001),
        (None, None, None),
        (0.002, True, 0.001),
    ]


def test_an_invalidated_result_keeps_its_score(bench: Bench, db: Db, finish: Callable[..., None]) -> None:
    """Its rows have left leaderboard.runs; the views say what it was, and that it does not count."""
    bench.board()
    submission_id = bench.submit(mode="leaderboard")
    finish()
    (before,) = db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    assert (before["score"], before["verdict"], before["status"]) == (2.5e-6, "accepted", "succeeded")
    db.execute("SELECT runner.invalidate(submission_id => %s, reason => 'reads the clock')", (submission_id,))
    (after,) = db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    said = {"score": None, "score_raw": 2.5e-6, "score_invalid_reason": "invalidated", "status": "failed"}
    assert {**said, "verdict": None}.items() <= after.items()
    assert "invalidated" in [row["check"] for row in db.execute("SELECT * FROM runner.dataset_quality").fetchall()]
    assert db.execute("SELECT * FROM runner.dataset_ranking").fetchall() == []


def test_a_time_below_what_the_board_demands_has_no_score(bench: Bench, db: Db, finish: Callable[..., None]) -> None:
    """As in runner.ranking."""
    bench.board()
    bench.submit(mode="leaderboard")
    finish()
    db.execute("SELECT runner.set_demand('identity', 'audited', NULL)")
    (row,) = db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    assert (row["score"], row["score_invalid_reason"]) == (None, "assurance")
    assert db.execute("SELECT * FROM runner.ranking").fetchall() == []


def test_results_of_any_shape_are_read(filler: Filler, db: Db) -> None:
    """Counts that lie, numbers that are none, times outside the calendar, JSON that is no object."""
    board = filler.board("gemv")
    filler.user("ada")
    shapes: list[Any] = [
        {"benchmark-count": "3", "benchmark.0.mean": "fast", "benchmark.0.runs": "1e5", "benchmark.2.mean": "25000.5"},
        {"benchmark-count": "-1"},
        {"test-count": "2", "test.0.spec": "n: 1", "test.1.status": "fail"},
        [],
        "text",
        None,
    ]
    for number, shape in enumerate(shapes):
        submission_id = filler.ranked(board, "ada", str(number).encode(), "0.001", result={}, duration="long")
        db.execute(
            "UPDATE leaderboard.runs SET result = %s, meta = '[]', system_info = '3', start_time = '-infinity',"
            " end_time = 'infinity' WHERE submission_id = %s AND NOT secret",
            (psycopg.types.json.Jsonb(shape), submission_id),
        )
    cases = db.execute("SELECT case_index, spec, mean_ns, runs FROM runner.dataset_runs ORDER BY run_id, 1").fetchall()
    assert [tuple(case.values()) for case in cases] == [
        (0, None, None, None),
        (2, None, 25000.5, None),
        (None, None, None, None),
        (0, "n: 1", None, None),
        (1, None, None, None),
        *[(None, None, None, None)] * 3,
    ]
    assert db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    assert db.execute("SELECT * FROM runner.dataset_quality").fetchall()


@pytest.mark.parametrize("banner", BANNERS)
@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy:UserWarning")
def test_a_query_runs_pasted_into_pandas(oddities: Oddities, database_url: str, login: str, banner: str) -> None:
    """Through the driver and through SQLAlchemy alike, with the ids edited by hand; the owner sees the same."""
    import sqlalchemy

    may_read_code(oddities.filler.db, login)
    query = edited(sections()[banner], oddities)
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        expected = connection.execute(query.encode()).fetchall()
    with psycopg.connect(login) as connection:
        plain = pd.read_sql(query, connection)
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(login))
    alchemy = pd.read_sql(sqlalchemy.text(query), engine)
    engine.dispose()
    assert len(plain) == len(alchemy) == len(expected) > 0
    assert list(plain.columns) == list(alchemy.columns) == list(expected[0])


def test_the_export_query_gives_the_published_columns(oddities: Oddities, database_url: str) -> None:
    """Every row, code as text; what PostgreSQL cannot hold as text is written with escapes."""
    from runner.extras.data.tables import FLAT

    query = re.sub(r"\b595\b", str(oddities.board), sections()[BANNERS[2]])
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        found = connection.execute(query.encode()).fetchall()
    assert list(found[0]) == FLAT.names
    codes = {row["submission_id"]: row["code"] for row in found}
    assert codes.keys() == oddities.filler.codes.keys()
    escaped = {oddities.bad_bytes: "x = '\\377\\376'\n", oddities.with_nul: "x = '\\000'\n"}
    assert {oddities.good: "# good", **escaped}.items() <= codes.items()


def test_the_views_agree_on_which_scores_count(oddities: Oddities, db: Db) -> None:
    """Their rule is written twice, for different plans."""

    def run_ids(query: str) -> set[int]:
        return {row["run_id"] for row in db.execute(query.encode())}

    valid = run_ids("SELECT run_id FROM runner.counting_score")
    assert valid
    usable = run_ids(
        "SELECT run_id FROM runner.public_run WHERE score_raw IS NOT NULL AND score_invalid_reason IS NULL"
    )
    assert usable
    assert valid == usable
    assert run_ids("SELECT run_id FROM runner.public_run WHERE score_invalid_reason = 'banned'")
