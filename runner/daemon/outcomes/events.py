"""The event objects that frontends receive on `runner_events`, as docs/frontends.md describes them. Pure.

Sent after the write that they tell of is committed: a NOTIFY inside it would hold the database's commit lock.
"""

from __future__ import annotations

from runner.model import Claimed, Job, JobState, Json, Verdict
from runner.store import Ended, Reclaimed


def claimed(job: Job, *, host: str) -> Json:
    """A host has begun to work on a job."""
    return {"event": "claimed", "host": host, **job.about}


def done(job: Job, verdict: Verdict, *, submission_done: bool) -> Json:
    """A job has a verdict."""
    return {"event": "done", **job.about, "verdict": verdict.value, "submission_done": submission_done}


def ended(job: Claimed, how: Ended) -> Json:
    """An attempt ended without a result: the job is queued again, cancelled, or over as internal_error."""
    return _ended(job.about, how.state, submission_done=how.submission_done)


def reclaimed(job: Reclaimed) -> Json:
    """A lease expired: the job is queued again, cancelled, or over as internal_error."""
    about = {
        "submission_id": job.submission_id,
        "job_id": job.job_id,
        "gpu_type": job.gpu_type,
        "secret": job.secret,
    }
    return _ended(about, job.state, submission_done=job.submission_done)


def _ended(about: Json, state: JobState, *, submission_done: bool) -> Json:
    verdict = {"verdict": Verdict.INTERNAL_ERROR.value} if state is JobState.DONE else {}
    return {"event": state.value, **about, **verdict, "submission_done": submission_done}
