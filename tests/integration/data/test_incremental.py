"""A second export reads only what is new, and is exact: whatever was written, what comes out is a full export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from runner.data import export, rows
from runner.data.export import Summary
from runner.data.people import Identity
from runner.data.runs import RunsFile
from runner.errors import DataError
from tests.integration.data.conftest import Filler, Oddities, settle
from tests.integration.data.conftest import exported as exported_now
from tests.integration.data.test_export import content

#: Submissions of a block in these tests.
FEW = 4


def exported(url: str, target: Path, **options: Any) -> Summary:  # noqa: ANN401
    """An export that has seen all that was written."""
    settle(url)
    return exported_now(url, target, **options)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tables", "runs", "rows", "export"):
        monkeypatch.setattr(f"runner.data.{module}.BLOCK", FEW)


@pytest.fixture(name="read")
def _read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of submissions whose runs were read."""
    ranges: list[tuple[int, int]] = []
    write = RunsFile.write

    def noted(self: RunsFile, *, read: Callable[[int, int], Any], **rest: Any) -> Any:  # noqa: ANN401
        def reading(first: int, last: int) -> Any:  # noqa: ANN401
            ranges.append((first, last))
            return read(first, last)

        return write(self, read=reading, **rest)

    monkeypatch.setattr(RunsFile, "write", noted)
    return ranges


@pytest.fixture(name="looked_up")
def _looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many rows each export read, where it took the others from the older one; None: it read all."""
    counts: list[int | None] = []
    choose = export._Making._merged

    def noted(self: Any, *arguments: Any) -> Any:  # noqa: ANN401
        counts.append(None)
        return choose(self, *arguments)

    merge = rows.merged

    def counted(older: Any, without: Any, fresh: Any) -> Any:  # noqa: ANN401
        read = list(fresh)
        counts[-1] = sum(some.num_rows for some in read)
        return merge(older, without, read)

    monkeypatch.setattr(export._Making, "_merged", noted)
    monkeypatch.setattr(rows, "merged", counted)
    return counts


def block(submission_id: int) -> int:
    """The block of a submission."""
    return submission_id // FEW


def test_only_blocks_that_changed_are_read(
    oddities: Oddities, database_url: str, tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    """Nothing for nothing; then one new submission's; a run that went, a run that changed, a status, a job."""
    exported(database_url, tmp_path / "out")
    assert read == [(0, 2**31 - 1)]
    read.clear()
    exported(database_url, tmp_path / "out")
    assert read == []
    filler = oddities.filler
    new = filler.ranked(oddities.board, "user0", b"# new", "0.00001")
    exported(database_url, tmp_path / "out")
    assert read == [(block(new) * FEW, 2**31 - 1)]
    changes = (
        "UPDATE leaderboard.runs SET score = score * 2 WHERE submission_id = %s AND NOT secret",
        "UPDATE leaderboard.submission SET status = 'hacked' WHERE id = %s",
        "UPDATE leaderboard.submission_job_status SET status = 'failed' WHERE submission_id = %s",
        "DELETE FROM leaderboard.runs WHERE submission_id = %s AND secret",
        "DELETE FROM leaderboard.runs WHERE submission_id = %s",
    )
    for change in changes:
        read.clear()
        filler.db.execute(change.encode(), (oddities.bad_bytes,))
        exported(database_url, tmp_path / "out")
        first = block(oddities.bad_bytes) * FEW
        assert read == [(first, first + FEW - 1)], change
        exported(database_url, tmp_path / "full")
        assert content(tmp_path / "out") == content(tmp_path / "full")
        for path in (tmp_path / "full").rglob("*.parquet"):
            path.unlink()


def test_one_new_submission_has_its_own_row_read(
    oddities: Oddities, database_url: str, tmp_path: Path, looked_up: list[int | None]
) -> None:
    """And nothing new none; a submission with a code that others submitted has theirs read too."""
    exported(database_url, tmp_path / "out")
    exported(database_url, tmp_path / "out")
    oddities.filler.ranked(oddities.board, "user0", b"# new", "0.00001")
    exported(database_url, tmp_path / "out")
    oddities.filler.ranked(oddities.board, "user1", b"# new", "0.00002")
    exported(database_url, tmp_path / "out")
    assert looked_up == [None, 0, 1, 2]
    exported(database_url, tmp_path / "full")
    assert content(tmp_path / "out") == content(tmp_path / "full")


def test_rows_that_are_not_those_of_the_database_stop_the_export(
    oddities: Oddities, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older export stays."""
    exported(database_url, tmp_path / "out")
    before = content(tmp_path / "out")
    oddities.filler.ranked(oddities.board, "user0", b"# new", "0.00001")
    merge = rows.merged
    monkeypatch.setattr(rows, "merged", lambda older, without, fresh: merge(older, without, list(fresh)[:0]))
    with pytest.raises(DataError, match=r"leaderboard gemv has 22 pairs .* and 21 in the rows; nothing was exported"):
        exported(database_url, tmp_path / "out")
    assert content(tmp_path / "out") == before


#: Every way in which a row may become another one, by what happens to submissions, users, codes and runs elsewhere.
CHANGES = {
    "a better attempt with the same code": (
        """INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done,
               status, mode_category) SELECT leaderboard_id, 'again.py', user_id, code_id,
               submission_time + interval '1 day', true, 'active', 'leaderboard' FROM leaderboard.submission
               WHERE id = {good}""",
        """INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, meta,
               result, system_info) SELECT (SELECT max(id) FROM leaderboard.submission), start_time, end_time, mode,
               secret, runner, score / 2, passed, meta, result, system_info FROM leaderboard.runs
               WHERE submission_id = {good}""",
    ),
    "the better attempt goes, so the other one is back": (
        "DELETE FROM leaderboard.runs WHERE submission_id = (SELECT max(id) FROM leaderboard.submission)",
        "DELETE FROM leaderboard.submission WHERE id = (SELECT max(id) FROM leaderboard.submission)",
    ),
    "a user has another name": ("UPDATE leaderboard.user_info SET user_name = 'other' WHERE id = 'user2'",),
    "a user has gone": ("DELETE FROM leaderboard.user_info WHERE id = 'user3'",),
    "a user has come": ("INSERT INTO leaderboard.user_info (id, user_name) VALUES ('deleted', 'is back')",),
    "a user without submissions has come": ("INSERT INTO leaderboard.user_info (id, user_name) VALUES ('x', 'x')",),
    "a submission is hacked": ("UPDATE leaderboard.submission SET status = 'hacked' WHERE id = {two_runners}",),
    "an old record has gone": (
        "DELETE FROM leaderboard.runs WHERE submission_id = {good}",
        "DELETE FROM leaderboard.submission_job_status WHERE submission_id = {good}",
        "DELETE FROM leaderboard.submission WHERE id = {good}",
    ),
    "a code is another one": ("UPDATE leaderboard.code_files SET code = '# edited' WHERE id = {code}",),
    "a submission has another code": ("UPDATE leaderboard.submission SET code_id = {code} WHERE id = {blank}",),
    "a submission is of another user": ("UPDATE leaderboard.submission SET user_id = 'user0' WHERE id = {blank}",),
}


@pytest.mark.parametrize("identity", [Identity.NAME, Identity.PSEUDONYM])
def test_whatever_changes_the_export_is_a_full_one(
    oddities: Oddities, database_url: str, tmp_path: Path, looked_up: list[int | None], identity: Identity
) -> None:
    """One change after the other; only some rows are read each time. At the end users are named otherwise."""
    options = {"identity": identity, "key": b"k" * 16 if identity is Identity.PSEUDONYM else None}
    exported(database_url, tmp_path / "out", **options)
    db = oddities.filler.db
    code = db.execute("SELECT code_id FROM leaderboard.submission WHERE id = %s", (oddities.two_runners,)).fetchone()
    assert code is not None
    names = {
        "good": oddities.good,
        "two_runners": oddities.two_runners,
        "blank": oddities.blank,
        "code": code["code_id"],
    }
    for number, (change, statements) in enumerate(CHANGES.items()):
        for statement in statements:
            db.execute(statement.format(**names).encode())
        done = exported(database_url, tmp_path / "out", **options)
        full = exported(database_url, tmp_path / f"full{number}", **options)
        assert content(tmp_path / "out") == content(tmp_path / f"full{number}"), change
        assert looked_up[-2] is not None, change
        assert looked_up[-2] < full.rows == done.rows, change
    exported(database_url, tmp_path / "out", identity=Identity.ID)
    assert looked_up[-1] is None


def test_what_all_runs_depend_on_has_all_of_them_read(
    oddities: Oddities, database_url: str, tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    """A leaderboard's row; another key; exclusions; and what was excluded comes back."""
    exported(database_url, tmp_path / "out")
    everything = [(0, 2**31 - 1)]
    oddities.filler.db.execute("UPDATE leaderboard.leaderboard SET description = 'changed'")
    for options in ({}, {"key": b"k" * 16}, {}):
        read.clear()
        exported(database_url, tmp_path / "out", **options)
        assert read == everything, options


def test_a_transaction_that_was_open_during_an_export_is_seen_by_the_next(
    oddities: Oddities, filler: Filler, database_url: str, tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    """Also what a part of it wrote, whose number no snapshot names."""
    with psycopg.connect(database_url) as slow:
        slow.execute("SELECT pg_current_xact_id()")
        with slow.transaction():  # a savepoint
            slow.execute("UPDATE leaderboard.runs SET score = 0.5 WHERE submission_id = %s", (oddities.good,))
        filler.ranked(oddities.board, "user0", b"# meanwhile", "0.00001")
        exported_now(database_url, tmp_path / "out")
        slow.commit()
    read.clear()
    exported(database_url, tmp_path / "out")
    first = block(oddities.good) * FEW
    assert any(begin <= first <= end for begin, end in read)
    exported(database_url, tmp_path / "full")
    assert content(tmp_path / "out") == content(tmp_path / "full")


def test_a_manifest_of_another_history_is_not_believed(
    oddities: Oddities, database_url: str, tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    """Nor one that saw more than this snapshot does."""
    exported(database_url, tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    for change in ({"history": "0" * 64}, {"seen": "4000000000:4000000000:"}, {"seen": "x"}):
        told = json.loads(path.read_text())
        told["watermark"].update(change)
        path.write_text(json.dumps(told))
        read.clear()
        exported(database_url, tmp_path / "out")
        assert read == [(0, 2**31 - 1)], change


def test_the_rows_of_an_export_are_those_of_the_view(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Flags and sol too, which an export puts together itself; with cases that are too fast and scores that differ."""
    filler = oddities.filler
    fast = {"benchmark-count": "2", "check": "pass"}
    for case, sol in enumerate(("1.5", "0.5")):
        fast |= {f"benchmark.{case}.mean": "20000", f"benchmark.{case}.sol": sol, f"benchmark.{case}.spec": "n: 1"}
    filler.ranked(oddities.board, "user0", b"# light", "0.00002", result=fast)
    filler.ranked(oddities.board, "user0", b"# differs", "0.00003", result={**fast, "benchmark.1.sol": "0.9"})
    exported(database_url, tmp_path / "out")
    exported(database_url, tmp_path / "out")

    of_code = {"code_blank", "code_encoding"}
    found = [
        (
            row["submission_id"],
            row["runner"],
            row["score"],
            row["run_id"],
            sorted({*row["flags"]} - of_code),
            row["sol"],
        )
        for row in pq.read_table(tmp_path / "out" / "submissions.parquet").to_pylist()
    ]
    expected = [
        (row["submission_id"], row["runner"], row["score"], row["run_id"], sorted(row["flags"]), row["sol"])
        for row in filler.db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    flags = {flag for row in found for flag in row[4]}
    assert {"faster_than_light", "score_differs", "code_shared", "user_missing"} <= flags
    assert any(row[5] for row in found)
