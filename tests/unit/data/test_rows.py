"""Which rows and row groups of an older export stay as they are, and what cases say of runs."""

from __future__ import annotations

import hashlib
import math
import random
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runner.data import rows
from runner.data.code import Codes
from runner.data.tables import GROUP_ROWS, SUBMISSIONS, Writer, table

_LIMIT = 1000


def codes_of(folder: Path, sizes: list[int]) -> Codes:
    """Codes of these sizes, which are numbered in this order."""
    codes = Codes(folder)
    hashes = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(len(sizes))]
    codes.want(pa.chunked_array([pa.array(hashes, pa.large_string())]), np.arange(len(sizes)), np.array(sizes))
    return codes


def edges_of(groups: list[rows.FlatGroup]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first row of each group, and the end."""
    return np.cumsum([0, *(len(group.codes) for group in groups)])


def test_a_new_row_changes_the_group_that_it_is_in_and_few_others(tmp_path: Path) -> None:
    """All others are those of the older file, wherever the row comes."""
    chance = random.Random(3)  # noqa: S311 - the same sizes each time
    sizes = [chance.randint(1, 300) for _ in range(2000)]
    sizes[77] = 5 * _LIMIT
    with closing(codes_of(tmp_path, sizes)) as codes:
        older = np.array([number for number in chance.sample(range(2000), 2000) if number != 1234])
        before = rows.planned(older, codes, _LIMIT)
        assert np.array_equal(np.concatenate([group.codes for group in before]), older)
        assert all(len(group.codes) == 1 or codes.sizes[group.codes].sum() <= _LIMIT for group in before)
        assert {group.kept for group in before} == {None}
        for at in (0, 1, 700, len(older)):
            now = np.insert(older, at, 1234)
            same = np.insert(np.arange(len(older)), at, -1)
            after = rows.planned(now, codes, _LIMIT, same=same, older=edges_of(before))
            assert np.array_equal(np.concatenate([group.codes for group in after]), now)
            for group in after:
                assert group.kept is None or np.array_equal(group.codes, before[group.kept].codes)
            assert sum(group.kept is None for group in after) <= 12, at
            assert [group.codes.tolist() for group in after] == [
                group.codes.tolist() for group in rows.planned(now, codes, _LIMIT)
            ]


def test_rows_in_another_order_are_no_group_of_the_older_file(tmp_path: Path) -> None:
    """Nor are some of a group's rows, nor one that follows where another did."""
    with closing(codes_of(tmp_path, [600] * 6)) as codes:
        older = np.arange(6)
        edges = np.array([0, 2, 4, 6])
        # Each code is a group of its own, and none of the older file's is.
        assert {group.kept for group in rows.planned(older, codes, _LIMIT, same=older, older=edges)} == {None}
        swapped = rows.planned(older, codes, _LIMIT, same=older[::-1], older=np.arange(7))
        assert [group.kept for group in swapped] == [5, 4, 3, 2, 1, 0]
    with closing(codes_of(tmp_path, [1] * 4)) as codes:
        (group,) = rows.planned(np.arange(4), codes, 10**9, same=np.array([0, 2, 1, 3]), older=np.array([0, 4]))
        assert group.kept is None
        (group,) = rows.planned(np.arange(4), codes, 10**9, same=np.arange(4), older=np.array([0, 4]))
        assert group.kept == 0


def test_a_group_has_no_more_rows_than_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its codes are."""
    monkeypatch.setattr(rows, "GROUP_ROWS", 7)
    assert GROUP_ROWS > 7
    with closing(codes_of(tmp_path, [0] * 20)) as codes:
        groups = rows.planned(np.arange(20), codes, _LIMIT)
        assert [last - first for first, last in pairwise(edges_of(groups).tolist())] == [7, 7, 6]


def submissions(*changes: dict[str, object]) -> pa.Table:
    """Rows of submissions.parquet, each with these values in place of the usual ones."""
    usual: dict[str, object] = {
        "submission_id": 1,
        "leaderboard_id": 1,
        "problem_name": "gemv",
        "user_id": "7",
        "user_name": "ada",
        "code_id": 3,
        "file_name": "a.py",
        "submission_time": 10**15,
        "status": "succeeded",
        "flags": [],
        "code_sha256": "a" * 64,
        "code_bytes": 1,
        "code_encoding": "utf-8",
    }
    lines = [{**usual, **change} for change in changes]
    return table(SUBMISSIONS, [tuple(line.get(name) for name in SUBMISSIONS.names) for line in lines])


def test_a_row_is_equal_by_all_that_the_flat_file_has_of_it(tmp_path: Path) -> None:
    """Also one with nulls; what only submissions.parquet has does not count."""
    ranked = {"score": 0.5, "passed": True, "mode": "leaderboard"}
    with Writer(tmp_path / "submissions.parquet", SUBMISSIONS) as writer:
        writer.group(
            submissions(
                {"submission_id": 5, "runner": "H100", **ranked},
                {"submission_id": 5, "runner": "B200", **ranked},
                {"submission_id": 4},
                {"submission_id": 6, "runner": "B200", **ranked},
            )
        )
    now = submissions(
        {"submission_id": 4, "flags": ["code_shared"]},
        {"submission_id": 5, "runner": "B200", **ranked},
        {"submission_id": 5, "runner": "H100", **ranked, "score": 0.25},
        {"submission_id": 5, "runner": "A100", **ranked},
        {"submission_id": 5},
        {"submission_id": 6, "runner": "B200", **ranked, "user_name": "eve"},
        {"submission_id": 6, "runner": "B200", **ranked, "code_sha256": "b" * 64},
        {"submission_id": 6, "runner": "B200", **ranked, "mode": None},
        {"submission_id": 6, "runner": "B200", **ranked},
        {"submission_id": 9, "runner": "B200", **ranked},
    )
    found = rows.equal_rows(tmp_path / "submissions.parquet", iter([now.slice(0, 3), now.slice(3)]))
    assert found.tolist() == [2, 1, -1, -1, -1, -1, -1, -1, 3, -1]


def test_figures_of_the_database_and_of_an_older_file_are_the_same() -> None:
    """A run without any has none."""
    figures = rows.Figures()
    figures.add(
        [
            pa.record_batch(
                {
                    "run_id": pa.array([9, 4], pa.int32()),
                    "sol": pa.array([1.5, None], pa.float64()),
                    "faster_than_light": [True, False],
                    "score_differs": [False, True],
                }
            )
        ]
    )
    figures.take(
        submissions(
            {"run_id": 2, "sol": 0.25, "flags": ["code_shared", "faster_than_light", "score_differs"]},
            {"run_id": 3, "flags": ["code_shared"]},
        )
    )
    for _ in range(2):
        found = figures.of(np.array([2, 3, 4, -1, 9, 10]))
        assert found["failed"].tolist() == [3, 0, 2, 0, 1, 0]
        assert [None if math.isnan(sol) else sol for sol in found["sol"]] == [0.25, None, None, None, 1.5, None]
    assert rows.Figures().of(np.array([1]))["failed"].tolist() == [0]
