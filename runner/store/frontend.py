"""The part of a store for frontends: submit, cancel, and look. Other frontends speak SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from runner.base.errors import NotFoundError
from runner.base.model import Artifact, Mode
from runner.store.base import Base, typed
from runner.store.clean import to_jsonb
from runner.store.connection import Row, row, rows
from runner.store.queries import QUERIES
from runner.store.records import (
    ArtifactLine,
    JobView,
    RunView,
    StatusLine,
    SubmissionView,
    ValidationLine,
)


class Frontend(Base):
    """The part of a store that a submission's author and an onlooker use."""

    def submit(
        self,
        *,
        leaderboard: str | None,
        user_id: str,
        file_name: str,
        code: bytes,
        mode: str,
        gpu_types: Sequence[str] | None,
        user_name: str | None,
        priority: int = 0,
        idempotency_key: str | None = None,
        start_at: datetime | None = None,
        expires_at: datetime | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> int:
        """Store a submission and its jobs; returns the submission's id.

        The arguments are those of `runner.submit` (docs/frontends.md).

        Raises:
            SubmissionError: refused; the message is for its author.
        """
        stored = self._one(
            "submit",
            leaderboard=leaderboard,
            user_id=user_id,
            file_name=file_name,
            code=code,
            mode=mode,
            gpu_types=None if gpu_types is None else list(gpu_types),
            user_name=user_name,
            priority=priority,
            idempotency_key=idempotency_key,
            start_at=start_at,
            expires_at=expires_at,
            options=to_jsonb(options),
        )
        return int(stored["submission_id"])

    def cancel(self, submission_id: int, user_id: str | None = None) -> int:
        """Cancel a submission's waiting jobs and ask its running ones to stop; returns how many jobs that were.

        Raises:
            NotFoundError: no such submission, or not one of `user_id`.
        """
        return int(self._one("cancel", submission_id=submission_id, user_id=user_id)["asked"])

    def submission(self, submission_id: int, *, admin: bool = True) -> SubmissionView:
        """Everything about a submission, secret output included; unless `admin`, what the login may read of it.

        Raises:
            MissingRightError: of an `admin` whose login is a frontend's.
            NotFoundError: no such submission, or one without jobs of ours.
        """
        parameters = {"submission_id": submission_id}
        with self._link.transaction() as connection:
            status = row(connection, QUERIES["status"], parameters)
            if status is None:
                raise NotFoundError(f"submission {submission_id} does not exist or was never queued here")
            whole = admin or rows(connection, QUERIES["may_read_results"])[0]["may"]
            runs: dict[int, list[RunView]] = {}
            for record in rows(connection, QUERIES["runs"] if whole else QUERIES["shown_runs"], parameters):
                runs.setdefault(record.pop("job_id"), []).append(RunView(score_s=_float(record.pop("score")), **record))
            artifacts: dict[int, list[ArtifactLine]] = {}
            for record in rows(connection, QUERIES["artifacts"], parameters) if whole else ():
                artifacts.setdefault(record.pop("job_id"), []).append(ArtifactLine(**record))
            jobs = tuple(
                JobView(
                    **typed(record),
                    runs=tuple(runs.get(record["id"], ())),
                    artifacts=tuple(artifacts.get(record["id"], ())),
                )
                for record in rows(connection, QUERIES["jobs"] if whole else QUERIES["shown_jobs"], parameters)
            )
        return SubmissionView(status=_status_line(status), jobs=jobs)

    def queue(self, *, limit: int) -> Sequence[StatusLine]:
        """What runs, what waits and the newest of what is over, in this order."""
        return [_status_line(record) for record in self._all("queue", limit=limit)]

    def validations(
        self, *, leaderboard: str | None = None, submission_id: int | None = None, sweep_id: int | None = None
    ) -> Sequence[ValidationLine]:
        """What validations said, of a leaderboard, a submission or a sweep; of the task's present version alone."""
        lines = self._all("validations", leaderboard=leaderboard, submission_id=submission_id, sweep_id=sweep_id)
        return [ValidationLine(**line) for line in lines]

    def artifact(self, artifact_id: int) -> Artifact:
        """A kept file.

        Raises:
            NotFoundError: no such artifact, or it has expired.
        """
        kept = self._all("artifact", id=artifact_id)
        if not kept:
            raise NotFoundError(f"artifact {artifact_id} does not exist or has expired")
        return Artifact(**kept[0])


def _status_line(record: Row) -> StatusLine:
    own = {key: value for key, value in typed(record).items() if key not in ("score", "modes", "progress")}
    modes, progress = tuple(map(Mode, record["modes"])), tuple(record["progress"] or ())
    return StatusLine(**own, modes=modes, progress=progress, score_s=_float(record["score"]))


def _float(number: Decimal | None) -> float | None:
    return None if number is None else float(number)
