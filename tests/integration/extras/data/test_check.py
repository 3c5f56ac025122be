"""`data check`: each check finds what it is for, and nothing in sound data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runner.base.errors import DataError
from runner.extras.data.check import check
from tests.integration.extras.data.conftest import START, Filler, Oddities, exported, no_progress

Plant = Callable[[Filler, int], int]


def test_each_oddity_is_named(oddities: Oddities, database_url: str) -> None:
    """By the check that is for it, with severity; and the report says that it is fatal."""
    report = check(database_url, (), no_progress)
    named: dict[str, set[int | None]] = {}
    for finding in report.findings:
        named.setdefault(finding.check, set()).add(finding.submission_id)
        assert finding.reason
    for reason, submission_id in oddities.unusable.items():
        assert submission_id in named[reason], reason
    expected = {"code_blank": {oddities.blank}, "user_missing": {oddities.orphan}}
    assert {**expected, "code_encoding": {oddities.bad_bytes, oddities.with_nul}}.items() <= named.items()
    assert oddities.two_runners in named["code_shared"]
    assert report.fatal
    assert {finding.check for finding in report.findings if finding.severity == "unusable"} == set(oddities.unusable)
    assert report.codes == len(set(oddities.filler.codes.values()))


def test_sound_data_has_no_finding(filler: Filler, database_url: str) -> None:
    """Several users and runners, failures too."""
    board = filler.board("gemv")
    for number in range(5):
        user = filler.user(f"user{number}")
        filler.ranked(board, user, f"# {number}".encode(), f"0.00{number + 10}")
        filler.submission(board, user, f"# failed {number}".encode(), job="failed")
    report = check(database_url, (), no_progress)
    assert (report.findings, report.fatal, report.rows, report.codes) == ((), False, 10, 10)


def _fast(filler: Filler, board: int) -> int:
    result = {"benchmark-count": "1", "benchmark.0.mean": "1000000", "benchmark.0.sol": "1.25"}
    return filler.ranked(board, "ada", b"light", "0.001", result=result)


def _differs(filler: Filler, board: int) -> int:
    result = {"benchmark-count": "2", "benchmark.0.mean": "1000000", "benchmark.1.mean": "4000000"}
    filler.ranked(board, "ada", b"right", "0.002", result=result)
    return filler.ranked(board, "ada", b"wrong", "0.0020001", result=result)


def _sudden(filler: Filler, board: int) -> int:
    filler.ranked(board, "bob", b"record", "0.0001")
    filler.ranked(board, "ada", b"slow", "0.001")
    return filler.ranked(board, "ada", b"quick", "0.0002")


def _record(filler: Filler, board: int) -> int:
    filler.ranked(board, "bob", b"record", "0.003")
    return filler.ranked(board, "ada", b"leap", "0.001")


def _ahead(filler: Filler, board: int) -> int:
    filler.db.execute("UPDATE leaderboard.leaderboard SET deadline = now() + interval '9 days'")
    return filler.submission(board, "ada", b"ahead", at=datetime.now(UTC) + timedelta(days=1))


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("faster_than_light", _fast),
        ("score_differs", _differs),
        ("sudden_gain", _sudden),
        ("record_leap", _record),
        ("end_before_start", lambda filler, board: filler.ranked(board, "ada", b"back", "0.001", lasted_s=-1)),
        ("start_before_submission", lambda filler, board: filler.ranked(board, "ada", b"x", "0.001", begins_s=-3600)),
        (
            "time_implausible",
            lambda filler, board: filler.submission(board, "ada", b"x", at=START - timedelta(days=900)),
        ),
        ("time_implausible", _ahead),
        ("after_deadline", lambda filler, board: filler.submission(board, "ada", b"x", at=START + timedelta(days=31))),
        ("code_blank", lambda filler, board: filler.submission(board, "ada", b"")),
    ],
)
def test_a_suspect_is_found_by_its_check_alone(filler: Filler, database_url: str, name: str, plant: Plant) -> None:
    """And only the planted submission; a suspect is not fatal."""
    board = filler.board("gemv")
    filler.user("ada")
    filler.user("bob")
    submission_id = plant(filler, board)
    report = check(database_url, (), no_progress)
    assert {(finding.check, finding.submission_id) for finding in report.findings} == {(name, submission_id)}
    assert not report.fatal


def test_code_that_is_not_there_is_structural(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """It stops an export, too."""
    board = filler.board("gemv")
    filler.user("ada")
    submission_id = filler.ranked(board, "ada", b"x", "0.001")
    filler.db.execute("ALTER TABLE leaderboard.submission DROP CONSTRAINT submission_code_id_fkey")
    filler.db.execute("DELETE FROM leaderboard.code_files")
    report = check(database_url, (), no_progress)
    assert [(finding.check, finding.submission_id) for finding in report.findings] == [("code_missing", submission_id)]
    assert report.fatal
    with pytest.raises(DataError, match="is missing; nothing was exported"):
        exported(database_url, tmp_path / "out")


def test_a_row_that_is_there_twice_is_structural(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """As where an index of the database is damaged. It stops an export, too."""
    board = filler.board("gemv")
    submission_id = filler.ranked(board, filler.user("ada"), b"one", "0.001")
    filler.db.execute("ALTER TABLE leaderboard.submission DROP CONSTRAINT submission_pkey CASCADE")
    again = filler.submission(board, filler.user("bob"), b"two", job=None)
    filler.db.execute("UPDATE leaderboard.submission SET id = %s WHERE id = %s", (submission_id, again))
    report = check(database_url, (), no_progress)
    assert ("rows_not_unique", submission_id) in [(found.check, found.submission_id) for found in report.findings]
    assert report.fatal
    with pytest.raises(DataError, match="two rows have the same submission and runner; nothing was exported"):
        exported(database_url, tmp_path / "out")
