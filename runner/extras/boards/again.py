"""What operators do with results: evaluate again, take out of the ranking, look at attempts that gave none.

The rules lie in the functions of the same names in `schema/functions`. Knows no rule itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runner.base.model import JobState, Mode, Verdict
from runner.extras.boards.queries import QUERIES
from runner.store import Store
from runner.store.base import typed


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which evaluations an operator means; what is None does not matter, but not everything may be."""

    submission_id: int | None = None
    leaderboard: str | None = None
    #: The host that evaluated it.
    host: str | None = None
    #: Of the end of the evaluation: from `since` on, before `until`.
    since: datetime | None = None
    until: datetime | None = None
    #: Names or aliases; empty: all.
    gpu_types: tuple[str, ...] = ()
    #: Of the job; empty: all.
    verdicts: tuple[Verdict, ...] = ()
    #: A part of the job's error, or of the reason for which an attempt gave no result, in any case.
    cause: str | None = None


@dataclass(frozen=True, kw_only=True)
class MatchLine:
    """How much of one kind a selection matches. An evaluation is one submission on one GPU type in one mode."""

    leaderboard: str
    gpu_type: str
    mode: Mode
    #: Why these are not evaluated again: open, cancelled, hacked, not offered; None if nothing is in the way.
    obstacle: str | None
    evaluations: int
    #: Jobs that a rerun makes, if nothing is in the way.
    jobs: int
    #: Jobs whose results count, which an invalidation takes out.
    counting: int


@dataclass(frozen=True, kw_only=True)
class FailedLine:
    """An attempt that gave no result through no fault of the submission, and what became of its job."""

    at: datetime
    #: failed (its host said so) or reclaimed (its host was silent).
    kind: str
    #: None: the job is a group of a batch.
    submission_id: int | None
    leaderboard: str | None
    #: The batch's name, or its number; None: the job is a submission's.
    batch: str | None = None
    user_id: str
    job_id: int
    attempt: int
    host: str | None
    gpu_type: str
    mode: Mode
    secret: bool
    state: JobState
    verdict: Verdict | None
    slot: str | None
    error: str | None


class ResultStore(Store):
    """A store that also has results evaluated again, or taken out."""

    def matching(self, selection: Selection) -> Sequence[MatchLine]:
        """The jobs that a rerun or an invalidation of this selection would concern; writes nothing.

        Raises:
            SubmissionError: nothing is selected, or a leaderboard, host or GPU type is unknown.
            NotFoundError: no such submission.
        """
        return [MatchLine(**typed(row)) for row in self.all(QUERIES["matching"], **_parameters(selection))]

    def rerun(self, selection: Selection, *, reason: str | None = None, priority: int = -1) -> int:
        """Evaluate the selected jobs again; returns how many jobs that makes.

        The old results count until the new ones are there. Jobs that wait or run are left alone.

        Raises:
            SubmissionError: as `matching`; or the one submission selected cannot be evaluated again.
            NotFoundError: no such submission.
        """
        return int(self.all(QUERIES["rerun"], **_parameters(selection), reason=reason, priority=priority)[0]["jobs"])

    def invalidate(self, selection: Selection, *, reason: str) -> int:
        """Take the selected jobs out of the ranking; returns how many jobs that concerned.

        The submissions' authors read the reason. Jobs that wait or run are left alone.

        Raises:
            SubmissionError: as `matching`; or the reason is empty.
            NotFoundError: no such submission.
        """
        return int(self.all(QUERIES["invalidate"], **_parameters(selection), reason=reason)[0]["jobs"])

    def failed(
        self,
        *,
        limit: int,
        since: datetime | None = None,
        host: str | None = None,
        leaderboard: str | None = None,
    ) -> Sequence[FailedLine]:
        """Attempts that gave no result through our fault, the newest first, for as long as events are kept."""
        lines = self.all(QUERIES["failed"], limit=limit, since=since, host=host, leaderboard=leaderboard)
        return [FailedLine(**typed(line)) for line in lines]


def _parameters(selection: Selection) -> Mapping[str, Any]:
    return {
        **vars(selection),
        "gpu_types": list(selection.gpu_types) or None,
        "verdicts": [verdict.value for verdict in selection.verdicts] or None,
    }
