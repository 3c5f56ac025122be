"""Operators' actions: drain hosts, pause GPU types, set how often jobs are tried again.

The rules lie in the functions of the same names in `schema/functions`. Knows no rule itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg

from runner.base.errors import SubmissionError
from runner.store.base import Base


class Operations(Base):
    """The part of a store for operators."""

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
