"""Operators' actions: evaluate again, take out of the ranking, drain hosts, pause GPU types; look for faults.

The rules lie in the functions of the same names in `schema/functions`. Knows no rule itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg

from runner.base.errors import SubmissionError
from runner.store.base import Base, typed
from runner.store.records import FailedLine, MatchLine, Selection


class Operations(Base):
    """The part of a store for operators."""

    def matching(self, selection: Selection) -> Sequence[MatchLine]:
        """The jobs that a rerun or an invalidation of this selection would concern; writes nothing.

        Raises:
            SubmissionError: nothing is selected, or a leaderboard, host or GPU type is unknown.
            NotFoundError: no such submission.
        """
        return [MatchLine(**typed(row)) for row in self._all("matching", **_parameters(selection))]

    def rerun(self, selection: Selection, *, reason: str | None = None, priority: int = -1) -> int:
        """Evaluate the selected jobs again; returns how many jobs that makes.

        The old results count until the new ones are there. Jobs that wait or run are left alone.

        Raises:
            SubmissionError: as `matching`; or the one submission selected cannot be evaluated again.
            NotFoundError: no such submission.
        """
        return int(self._one("rerun", **_parameters(selection), reason=reason, priority=priority)["jobs"])

    def invalidate(self, selection: Selection, *, reason: str) -> int:
        """Take the selected jobs out of the ranking; returns how many jobs that concerned.

        The submissions' authors read the reason. Jobs that wait or run are left alone.

        Raises:
            SubmissionError: as `matching`; or the reason is empty.
            NotFoundError: no such submission.
        """
        return int(self._one("invalidate", **_parameters(selection), reason=reason)["jobs"])

    def set_retry(self, **columns: float) -> None:
        """Set how often jobs are tried again, for the whole queue: all columns of `runner.retry`."""
        self._all("save_retry", **columns)

    def drain(self, host: str, *, reason: str | None = None) -> bool:
        """Let a host finish what runs and claim nothing, until undrained. False: it was draining already.

        Raises:
            SubmissionError: no such host.
        """
        return bool(self._one("drain", host=host, reason=reason)["changed"])

    def undrain(self, host: str) -> bool:
        """Let a host claim again. False: it was not draining.

        Raises:
            SubmissionError: no such host.
        """
        return bool(self._one("undrain", host=host)["changed"])

    def pause(self, gpu_type: str, *, reason: str) -> bool:
        """Let no host claim jobs of a GPU type, by any of its names; what runs goes on. False: it was paused already.

        Raises:
            SubmissionError: unknown GPU type, or the reason is empty.
        """
        return bool(self._one("pause", gpu_type=gpu_type, reason=reason)["changed"])

    def resume(self, gpu_type: str) -> bool:
        """Let hosts claim jobs of a GPU type again. False: it was not paused.

        Raises:
            SubmissionError: unknown GPU type.
        """
        return bool(self._one("resume", gpu_type=gpu_type)["changed"])

    def failed(
        self,
        *,
        limit: int,
        since: datetime | None = None,
        host: str | None = None,
        leaderboard: str | None = None,
    ) -> Sequence[FailedLine]:
        """Attempts that gave no result through our fault, the newest first, for as long as events are kept."""
        lines = self._all("failed", limit=limit, since=since, host=host, leaderboard=leaderboard)
        return [FailedLine(**typed(line)) for line in lines]

    def open_tasks(self) -> Sequence[Mapping[str, Any]] | None:
        """`name`, `task` and `extra` of the open leaderboards; None: this login may not read tasks."""
        return self._all("open_tasks") if self._one("may_read_tasks")["may"] else None

    def moment(self, span: str) -> datetime:
        """The point in time that is a span from now, as PostgreSQL reads intervals: `2 hours ago`, `90 min ago`.

        Raises:
            SubmissionError: that is no span.
        """
        try:
            moment: datetime = self._one("moment", span=span)["moment"]
        except psycopg.DataError as error:
            raise SubmissionError(
                f"{span!r} is no span of time; write for example '2 hours ago' or '3 days ago'"
            ) from error
        return moment


def _parameters(selection: Selection) -> Mapping[str, Any]:
    return {
        **vars(selection),
        "gpu_types": list(selection.gpu_types) or None,
        "verdicts": [verdict.value for verdict in selection.verdicts] or None,
    }
