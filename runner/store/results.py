"""What came of a claimed job: progress, a result, or the reason why there is none. Called by the daemon's slots.

Every write is fenced: it counts only while the job is still running at the attempt that the caller claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import psycopg

from runner.errors import StaleAttemptError
from runner.model import Artifact, Job, JobResult, JobState, Json, Progress, RunRecord
from runner.store import queries
from runner.store.base import Base, expect, text
from runner.store.clean import clean_text, to_jsonb
from runner.store.connection import Row, row, rows
from runner.store.queries import Query
from runner.store.records import Completion, Ended

#: Pause after the first infrastructure failure; it doubles with each further one.
BACKOFF_S: Final = 5.0
BACKOFF_MAX_S: Final = 300.0


class Results(Base):
    """The part of a store that settles claimed jobs."""

    def progress(self, job: Job, progress: Progress) -> None:
        """Show how far a job is; a secret twin's progress is kept for operators and announced to nobody."""
        shown = {"phase": clean_text(progress.phase), "done": progress.done, "total": progress.total}
        with self._link.transaction() as connection:
            rows(connection, queries.SAVE_PROGRESS, {**_fence(job), "progress": to_jsonb(shown)})
            if not job.secret:
                event = {"event": "progress", **_about(job), **shown}
                rows(connection, queries.NOTIFY, {"channel": "runner_events", "payload": json.dumps(event)})

    def complete(self, job: Job, result: JobResult) -> Completion:
        """Commit what an attempt found: runs, artifacts, verdict and, after the last job, the submission's status.

        Committing the same result twice (the answer to the first commit was lost) is no error.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written but evidence in `runner.stale_result`.
        """
        with self._link.transaction() as connection:
            rows(connection, queries.LOCK_SUBMISSION, {"submission_id": job.submission_id})
            parameters = {
                **_fence(job),
                "verdict": result.verdict.value,
                "error": text(result.error),
                "report": to_jsonb(result.report),
                "build_ms": result.build_ns // 1_000_000,
                "eval_ms": result.eval_ns // 1_000_000,
            }
            finished = row(connection, queries.FINISH_JOB, parameters)
            if finished is not None:
                for run in result.runs:
                    _insert_run(connection, job, finished, run)
                for artifact in result.artifacts:
                    _insert_artifact(connection, job, artifact)
                return Completion(submission_done=_settle(connection, job))
            now = row(connection, queries.JOB_NOW, {"id": job.id})
            if now is not None and _is_committed(now, job, result):
                return Completion(submission_done=_is_settled(connection, job))
            rows(
                connection,
                queries.INSERT_STALE_RESULT,
                {**_fence(job), "verdict": result.verdict.value, "result": to_jsonb(_evidence(result))},
            )
        raise _stale(job, now)

    def fail(self, job: Job, *, error: str, report: Json | None, slot: str) -> Ended:
        """Record an infrastructure failure of a slot: the job is queued again, after a pause, elsewhere if possible.

        It is over, with verdict `internal_error`, if that was the last of `max_attempts`; it is cancelled if that was
        asked for meanwhile.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        parameters = {
            "error": text(error),
            "report": to_jsonb(report),
            "slot": text(slot),
            "backoff_s": BACKOFF_S,
            "backoff_max_s": BACKOFF_MAX_S,
        }
        return self._give_up(job, queries.FAIL_JOB, parameters)

    def release(self, job: Job, *, reason: str) -> Ended:
        """Put a running job back into the queue at no cost (drain, lost slot).

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        return self._give_up(job, queries.RELEASE_JOB, {"reason": text(reason)})

    def cancelled(self, job: Job) -> Ended:
        """Record that a running job was asked to stop and has stopped.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        return self._give_up(job, queries.CANCEL_JOB, {})

    def _give_up(self, job: Job, query: Query, parameters: Mapping[str, Any]) -> Ended:
        with self._link.transaction() as connection:
            rows(connection, queries.LOCK_SUBMISSION, {"submission_id": job.submission_id})
            changed = row(connection, query, {**_fence(job), **parameters})
            if changed is None:
                raise _stale(job, row(connection, queries.JOB_NOW, {"id": job.id}))
            return Ended(state=JobState(changed["state"]), submission_done=_settle(connection, job))


def _fence(job: Job) -> dict[str, Any]:
    return {"id": job.id, "attempt": job.attempt}


def _about(job: Job) -> dict[str, Any]:
    return {"submission_id": job.submission_id, "job_id": job.id, "gpu_type": job.gpu_type, "secret": job.secret}


def _settle(connection: psycopg.Connection[Row], job: Job) -> bool:
    parameters = {"submission_id": job.submission_id}
    done = bool(expect(row(connection, queries.SETTLE, parameters))["done"])
    if not done:
        rows(connection, queries.MARK_PENDING, parameters)
    return done


def _is_committed(now: Row, job: Job, result: JobResult) -> bool:
    """Whether this very result was written before: only the holder of an attempt can end it with a verdict."""
    return (now["state"], now["attempt"], now["verdict"]) == (JobState.DONE, job.attempt, result.verdict.value)


def _is_settled(connection: psycopg.Connection[Row], job: Job) -> bool:
    status = row(connection, queries.STATUS, {"submission_id": job.submission_id})
    return status is not None and bool(status["done"])


def _stale(job: Job, now: Row | None) -> StaleAttemptError:
    found = "it is gone" if now is None else f"it is {now['state']} at attempt {now['attempt']}"
    return StaleAttemptError(f"job {job.id}, attempt {job.attempt}: expected to be running still, but {found}")


def _evidence(result: JobResult) -> dict[str, Any]:
    return {
        "error": result.error,
        "report": result.report,
        "runs": [
            {
                "mode": run.mode,
                "passed": run.passed,
                "score_s": run.score_s,
                "result": run.result,
                "meta": run.meta,
                "system_info": run.system_info,
            }
            for run in result.runs
        ],
        "artifacts": [artifact.name for artifact in result.artifacts],
    }


def _insert_run(connection: psycopg.Connection[Row], job: Job, finished: Row, run: RunRecord) -> None:
    parameters = {
        "submission_id": job.submission_id,
        "started_at": finished["started_at"],
        "start_us": run.start_offset_ns // 1000,
        "end_us": run.end_offset_ns // 1000,
        "mode": clean_text(run.mode),
        "secret": finished["secret"],
        "runner": finished["gpu_type"],
        # repr is the shortest text that means this float; numeric keeps it exactly.
        "score": None if run.score_s is None else Decimal(repr(run.score_s)),
        "passed": run.passed,
        "compilation": to_jsonb(run.compilation),
        "meta": to_jsonb(run.meta),
        "result": to_jsonb(run.result),
        "system_info": to_jsonb(run.system_info),
    }
    written = expect(row(connection, queries.INSERT_RUN, parameters))
    rows(connection, queries.LINK_RUN, {"run_id": written["id"], "job_id": job.id})


def _insert_artifact(connection: psycopg.Connection[Row], job: Job, artifact: Artifact) -> None:
    parameters = {
        "job_id": job.id,
        "name": clean_text(artifact.name),
        "media_type": clean_text(artifact.media_type),
        "data": artifact.data,
    }
    rows(connection, queries.INSERT_ARTIFACT, parameters)
