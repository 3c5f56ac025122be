"""The quality of what a database holds: its own checks, those that read the code, and those of its structure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from runner.extras.data import Progress
from runner.extras.data.choice import named
from runner.extras.data.code import encoding_of, faults_of
from runner.extras.data.snapshot import Oddity, Scope, Snapshot, snapshot

#: What stops an export, or takes a score out of it.
FATAL: Final = ("structural", "unusable")
SEVERITIES: Final = (*FATAL, "suspect", "reported")
#: Every check, with what it means.
MEANING: Final = {
    "rows_not_unique": "two rows of an export have the same submission and runner",
    "code_missing": "a submission's code is not there, or does not have its hash",
    "hacked": "the submission or its job is marked as hacked",
    "invalidated": "an operator took the result out of the ranking",
    "outside_leaderboard": "a score of a run that is not in mode leaderboard",
    "not_passed": "a score of a run that did not pass",
    "nan": "the score is not a number",
    "infinite": "the score is infinite",
    "negative": "the score is negative",
    "zero": "the score is zero",
    "below_1ns": "the score is below a nanosecond",
    "longer_than_run": "the score is longer than the run itself",
    "faster_than_light": "a case is faster than the speed of light of its device",
    "score_differs": "the score is not what the times of its cases give",
    "sudden_gain": "at least 5 times better than the author's best before",
    "record_leap": "at least 3 times better than the record before",
    "end_before_start": "a run ended before it started",
    "start_before_submission": "a run started before its submission",
    "time_implausible": "submitted in the future, or before 2024",
    "after_deadline": "submitted after the deadline",
    "user_missing": "the user was deleted",
    "code_shared": "several users submitted the same code",
    "code_blank": "the code is empty or white space",
    "code_encoding": "the code is not UTF-8, or has a NUL",
    "noise": "how far the scores of one code on one runner are apart",
}
#: Codes that are in memory at once.
_CODES_AT_ONCE: Final = 64


@dataclass(frozen=True, kw_only=True)
class Report:
    """Rows checked, and the findings."""

    boards: tuple[str, ...]
    rows: int
    codes: int
    findings: tuple[Oddity, ...]

    @property
    def fatal(self) -> bool:
        """Whether a finding is unusable or structural."""
        return any(finding.severity in FATAL for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {
            "leaderboards": list(self.boards),
            "rows": self.rows,
            "codes": self.codes,
            "findings": [asdict(finding) for finding in self.findings],
        }


def check(dsn: str, boards: Sequence[str], progress: Progress) -> Report:
    """Check leaderboards; none named: all.

    Raises:
        DataError: there is no such leaderboard.
        DatabaseUnavailableError: the database cannot be reached, went away, or refuses this user.
    """
    with snapshot(dsn) as database:
        chosen = named(database.boards(), boards)
        ids = [board.id for board in chosen]
        findings = list(database.oddities(ids))
        progress("checks of the database", 1, 1)
        reader = _Rows(database)
        findings += reader.check(ids, progress)
    findings.sort(key=_order)
    return Report(
        boards=tuple(board.name for board in chosen),
        rows=reader.rows,
        codes=len(reader.codes),
        findings=tuple(findings),
    )


def _order(finding: Oddity) -> tuple[int, str, int, int]:
    return (
        SEVERITIES.index(finding.severity),
        finding.check,
        finding.submission_id or 0,
        finding.run_id or 0,
    )


class _Rows:
    """Reads every row and every code once."""

    def __init__(self, database: Snapshot) -> None:
        self._database = database
        self.rows = 0
        #: Code id -> hash, and who used it first: submission, problem, user.
        self.codes: dict[int, tuple[str | None, int, str, str]] = {}

    def check(self, boards: Sequence[int], progress: Progress) -> Iterator[Oddity]:
        """Findings about the rows and their code."""
        last: tuple[Any, Any] | None = None
        for lines in self._database.stream("keys", Scope(boards=tuple(boards))):
            for submission_id, runner, problem_name, user_id, code_id, sha256 in lines:
                self.rows += 1
                self.codes.setdefault(code_id, (sha256, submission_id, problem_name, user_id))
                if (submission_id, runner) == last:
                    yield self._oddity(
                        "rows_not_unique", "structural", code_id, f"runner {runner}", submission_id=submission_id
                    )
                last = (submission_id, runner)
        yield from self._read(progress)

    def _read(self, progress: Progress) -> Iterator[Oddity]:
        numbers = sorted(self.codes)
        for first in range(0, len(numbers), _CODES_AT_ONCE):
            ids = numbers[first : first + _CODES_AT_ONCE]
            codes = self._database.code(ids)
            for code_id in ids:
                code = codes.get(code_id)
                if code is None or hashlib.sha256(code).hexdigest() != self.codes[code_id][0]:
                    yield self._oddity("code_missing", "structural", code_id, f"code {code_id}")
                    continue
                for name, wrong in faults_of(code, encoding_of(code)).items():
                    yield self._oddity(name, "suspect", code_id, f"code {code_id} {wrong}")
            progress("code", first + len(ids), len(numbers))

    def _oddity(
        self, check: str, severity: str, code_id: int, reason: str, *, submission_id: int | None = None
    ) -> Oddity:
        _, first, problem_name, user_id = self.codes[code_id]
        return Oddity(
            check=check,
            severity=severity,
            problem_name=problem_name,
            submission_id=first if submission_id is None else submission_id,
            run_id=None,
            runner=None,
            user_id=user_id,
            reason=reason,
        )
