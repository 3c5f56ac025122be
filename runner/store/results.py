"""The outcome of a claimed job: progress, a result, or the reason why there is none.

Every write is fenced: it counts only while the job is still running at the attempt that the caller claimed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg

from runner.base.errors import StaleAttemptError
from runner.base.model import Artifact, Claimed, GroupJob, Job, JobResult, JobState, Json, Progress, RunRecord
from runner.store.base import Base, expect
from runner.store.clean import clean_text, to_jsonb
from runner.store.connection import Row, row, rows
from runner.store.queries import QUERIES
from runner.store.records import Completion, Ended


class Results(Base):
    """The part of a store that writes how claimed jobs end, and their progress."""

    def progress(self, job: Job, progress: Progress, *, tell: bool = True) -> bool:
        """Show how far a job is, and `tell` frontends; a secret job's progress is kept for operators only.

        Waits for no lock. False: another transaction holds the job, and nothing was shown: show it again soon.
        """
        shown = {"phase": clean_text(progress.phase), "done": progress.done, "total": progress.total}
        kept = shown if progress.slot is None else {**shown, "slot": clean_text(progress.slot)}
        with self._link.transaction() as connection:
            parameters = {"id": job.id, "attempt": job.attempt, "progress": to_jsonb(kept)}
            if expect(row(connection, QUERIES["show_progress"], parameters))["held"]:
                return False
            if tell and not job.secret:
                event = {"event": "progress", **job.about, **shown}
                rows(connection, QUERIES["notify"], {"events": json.dumps([event]), "work": None})
        return True

    def complete(self, job: Job, result: JobResult) -> Completion:
        """Commit what an attempt found: runs, artifacts, verdict and, after the last job, the submission's status.

        Committing the same result twice (the answer to the first commit was lost) is no error.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written but evidence in `runner.stale_result`.
        """
        (outcome,) = self._commit([(job, result)], waits=True)
        if outcome is None:
            raise RuntimeError(f"job {job.id}: a result that waits for its submission is never told busy")
        if isinstance(outcome, StaleAttemptError):
            raise outcome
        return outcome

    def complete_all(self, results: Sequence[tuple[Job, JobResult]]) -> Sequence[Completion | StaleAttemptError | None]:
        """Commit what several attempts found, as one transaction; the outcome of each, in order.

        None: not committed, because another transaction holds its submission, or it was given twice; `complete` waits.
        When this raises, some may have been committed all the same: commit them again, one by one if the database is
        not away.
        """
        return self._commit(results, waits=False)

    def complete_waiting(self, job: Job, result: JobResult, *, host: str, instance: str) -> Completion | None:
        """Commit the result of a job that `take_check` gave, without waiting for a lock.

        None: it no longer waits, or another transaction holds it, and nothing was written.
        """
        outcome = to_jsonb({"waits": False, **_result(job, result)})
        answer = self._all("complete_waiting", host=host, instance=instance, result=outcome)
        return Completion(submission_done=answer[0]["submission_done"]) if answer else None

    def _commit(
        self, results: Sequence[tuple[Job, JobResult]], *, waits: bool
    ) -> Sequence[Completion | StaleAttemptError | None]:
        parameters = {"results": to_jsonb([{"waits": waits, **_result(job, result)} for job, result in results])}

        def commit(connection: psycopg.Connection[Row]) -> Sequence[Row]:
            outcomes = rows(connection, QUERIES["complete"], parameters)
            for (job, result), outcome in zip(results, outcomes, strict=True):
                for artifact in result.artifacts if outcome["outcome"] == "committed" else ():
                    _insert_artifact(connection, job, artifact)
            return outcomes

        # Without files one statement says it all, and needs no transaction around it.
        files = any(result.artifacts for _, result in results)
        outcomes = self._link.run(commit) if files else self._link.all(QUERIES["complete"], parameters)
        return [_outcome(job, answer) for (job, _), answer in zip(results, outcomes, strict=True)]

    def fail(self, job: Claimed, *, error: str, report: Json | None, slot: str) -> Ended:
        """Record an infrastructure failure of a slot: the job is queued again, after a pause, elsewhere if possible.

        It is over, with verdict `internal_error`, if that was the last of `max_attempts`; it is cancelled if that was
        asked for meanwhile.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        return self._give_up("fail", job, error=error, report=to_jsonb(report), slot=slot)

    def release(self, job: Claimed, *, reason: str) -> Ended:
        """Put a running job back into the queue at no cost (drain, lost slot).

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        return self._give_up("release", job, reason=reason)

    def cancelled(self, job: Claimed) -> Ended:
        """Record that a running job was asked to stop and has stopped.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        return self._give_up("stopped", job)

    def _give_up(self, name: str, job: Claimed, **values: object) -> Ended:
        ended = self._one(name, id=job.id, attempt=job.attempt, submission_id=job.submission_id, **values)
        if ended["state"] is None:
            raise _stale(job, ended)
        return Ended(state=JobState(ended["state"]), submission_done=ended["submission_done"])


def _stale(job: Claimed, now: Row) -> StaleAttemptError:
    state, attempt = now["state_now"], now["attempt_now"]
    now_text = "it is gone" if state is None else f"it is {state} at attempt {attempt}"
    text = f"job {job.id}, attempt {job.attempt}: expected to be running still, but {now_text}"
    return StaleAttemptError(text, gone=state is None)


def _outcome(job: Job, answer: Row) -> Completion | StaleAttemptError | None:
    match answer["outcome"]:
        case "busy":
            return None
        case "stale":
            return _stale(job, answer)
        case _:
            return Completion(submission_done=answer["submission_done"])


def _result(job: Job, result: JobResult) -> dict[str, Any]:
    """A result as `runner.complete` takes it."""
    return {
        "job_id": job.id,
        "attempt": job.attempt,
        "submission_id": job.submission_id,
        "started_at": job.started_at.isoformat(),
        "verdict": result.verdict.value,
        "error": result.error,
        "report": result.report,
        "build_ms": result.build_ns // 1_000_000,
        "eval_ms": result.eval_ns // 1_000_000,
        "runs": [_run(run) for run in result.runs],
        **({"items": list(result.items), "slot": result.report.get("slot")} if isinstance(job, GroupJob) else {}),
        **({} if result.receipt is None else {"receipt": vars(result.receipt)}),
    }


def _run(run: RunRecord) -> dict[str, Any]:
    """One of its runs; JSON keeps every digit of the score."""
    return {
        "mode": run.mode,
        "start_us": run.start_offset_ns // 1000,
        "end_us": run.end_offset_ns // 1000,
        "passed": run.passed,
        "score_s": run.score_s,
        "compilation": run.compilation,
        "meta": run.meta,
        "result": run.result,
        "system_info": run.system_info,
    }


def _insert_artifact(connection: psycopg.Connection[Row], job: Job, artifact: Artifact) -> None:
    file = {"name": clean_text(artifact.name), "media_type": clean_text(artifact.media_type), "data": artifact.data}
    rows(connection, QUERIES["keep_file"], {"job_id": job.id, "attempt": job.attempt, **file})
