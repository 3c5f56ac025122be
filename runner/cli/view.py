"""A submission as the command line shows it, as records: made from the store's records or from a local result. Pure.

Alone decides which parts the command line hides. Of a secret job only an administrator sees more than the verdict
and whether its runs passed.
Renderers and JSON get the visible parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from runner.base.model import Job, JobResult, JobState, Json, Mode, Progress, RunRecord, Verdict
from runner.store.records import ArtifactLine, JobView, RunView, StatusLine, SubmissionView, ValidationLine


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """One run. Of a secret one, everything but `mode` and `passed` is empty unless asked for."""

    mode: str
    passed: bool
    score_s: float | None
    result: Mapping[str, str] = field(default_factory=dict)
    compilation: Json | None = None
    meta: Json = field(default_factory=dict)
    system_info: Json = field(default_factory=dict)

    def to_json(self, *, redacted: bool) -> dict[str, Any]:
        """As `submit --json` prints it; what is kept back is null, never absent."""
        return {
            "mode": self.mode,
            "passed": self.passed,
            "score": self.score_s,
            "result": None if redacted else self.result,
            "compilation": self.compilation,
            "meta": None if redacted else self.meta,
            "system_info": None if redacted else self.system_info,
        }


@dataclass(frozen=True, kw_only=True)
class ShownJob:
    """One job."""

    #: None for a local evaluation, which has no row.
    id: int | None
    gpu_type: str
    mode: Mode
    secret: bool
    state: JobState
    verdict: Verdict | None
    attempt: int
    error: str | None
    progress: Progress | None
    runs: tuple[ShownRun, ...]
    #: The job that it evaluates again.
    replaces: int | None = None
    #: None if its result counts; else replaced, dropped or invalidated, and why.
    retired_as: str | None = None
    retired_reason: str | None = None
    #: Files that it left, until they expire.
    artifacts: tuple[ArtifactLine, ...] = ()
    #: Why attempts ended without a result, oldest first; None for everyone but an administrator.
    causes: tuple[Json, ...] | None = None
    #: Details of a secret job were taken out.
    redacted: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `submit --json` prints it."""
        return {
            **{name: value for name, value in vars(self).items() if name not in ("progress", "redacted")},
            "runs": [run.to_json(redacted=self.redacted) for run in self.runs],
            "artifacts": [
                {"id": line.id, "name": line.name, "media_type": line.media_type, "size_bytes": line.size_bytes}
                for line in self.artifacts
            ],
        }


@dataclass(frozen=True, kw_only=True)
class ShownSubmission:
    """One submission with its jobs."""

    status: StatusLine
    jobs: tuple[ShownJob, ...]
    #: What the task's own script said of it.
    validations: tuple[ValidationLine, ...] = ()

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status.state in (JobState.DONE, JobState.CANCELLED)

    def to_json(self) -> dict[str, Any]:
        """As `submit --wait --json` and `status ID --json` print it."""
        values = asdict(self.status)
        times = {name: value.isoformat() for name, value in values.items() if isinstance(value, datetime)}
        values |= times | {"submitted": times["submission_time"], "score": self.status.score_s}
        return {
            **{name: values[name] for name in _OF_STATUS},
            "jobs": [job.to_json() for job in self.jobs],
            "validations": [{**asdict(line), "checked_at": line.checked_at.isoformat()} for line in self.validations],
        }


#: What a submission's object has of its row of `runner.status`.
_OF_STATUS = (
    "submission_id",
    "leaderboard",
    "file_name",
    "user_id",
    "user_name",
    "submitted",
    "state",
    "position",
    "verdict",
    "score",
    "timing",
    "correctness",
    "unranked",
    "error",
    "phase",
    "retry_reason",
    "retry_at",
    "no_host_since",
    "paused",
    "reruns",
    "rerunning",
)


def redact(job: ShownJob) -> ShownJob:
    """The job as `status` shows it without --admin: no faults of ours; of a secret one the verdict alone."""
    if not job.secret:
        return replace(job, causes=None)
    runs = tuple(ShownRun(mode=run.mode, passed=run.passed, score_s=None) for run in job.runs)
    # The phase of a secret run says how many hidden cases there are and how far the submission got.
    return replace(job, error=None, progress=None, causes=None, runs=runs, artifacts=(), redacted=True)


def from_result(job: Job, result: JobResult) -> ShownJob:
    """A local evaluation's job."""
    return ShownJob(
        id=None,
        gpu_type=job.gpu_type,
        mode=job.mode,
        secret=job.secret,
        state=JobState.DONE,
        verdict=result.verdict,
        attempt=job.attempt,
        error=result.error,
        progress=None,
        runs=tuple(_shown(run) for run in result.runs),
    )


def _shown(run: RunRecord | RunView) -> ShownRun:
    return ShownRun(
        mode=run.mode,
        passed=run.passed,
        score_s=run.score_s,
        result=run.result or {},
        compilation=run.compilation,
        meta=run.meta or {},
        system_info=run.system_info,
    )


def from_store(view: SubmissionView, *, admin: bool, validations: Sequence[ValidationLine] = ()) -> ShownSubmission:
    """What the database says about a submission, as this caller may see it.

    Args:
        view: the store's record.
        admin: show secret jobs in full, and whatever only operators should read.
        validations: what the task's own script said of it.
    """
    jobs = tuple(_from_view(job) for job in view.jobs)
    return ShownSubmission(
        status=view.status,
        jobs=jobs if admin else tuple(redact(job) for job in jobs),
        validations=tuple(validations),
    )


def _from_view(job: JobView) -> ShownJob:
    return ShownJob(
        id=job.id,
        gpu_type=job.gpu_type,
        mode=job.mode,
        secret=job.secret,
        state=job.state,
        verdict=job.verdict,
        attempt=job.attempt,
        error=job.error,
        progress=_progress(job.progress),
        runs=tuple(_shown(run) for run in job.runs),
        replaces=job.replaces,
        retired_as=job.retired_as,
        retired_reason=job.retired_reason,
        causes=tuple(job.causes),
        artifacts=job.artifacts,
    )


def _progress(value: Json | None) -> Progress | None:
    """A progress object of the database; None if there is none, or it is not one (any daemon version may write it)."""
    if value is None:
        return None
    phase, done, total = value.get("phase"), value.get("done"), value.get("total")
    if not (isinstance(phase, str) and isinstance(done, int) and isinstance(total, int)):
        return None
    return Progress(phase=phase, done=done, total=total)
