"""Store records that the tests of views and pages start from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from runner.base.model import JobState, Json, Mode, Verdict
from runner.store.records import JobView, RunView, StatusLine, SubmissionView

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET_MARK = "hidden-3f9a"
SYSTEM: Json = {
    "gpu": "",
    "cpu": "EPYC",
    "torch": "2.13.0",
    "hostname": "node1",
    "runner": {
        "host": "node1",
        "slot": "cpu0",
        "version": "0.1.0",
        "assurance": {"correctness": "judge", "timing": "audited"},
    },
}


def run(
    *,
    mode: str = "test",
    secret: bool = False,
    passed: bool = True,
    score_s: float | None = None,
    result: Mapping[str, str] | None = None,
    meta: Json | None = None,
    compilation: Json | None = None,
) -> RunView:
    """A row of results; a secret one carries SECRET_MARK wherever text can be."""
    mark = {"stdout": SECRET_MARK, "stderr": SECRET_MARK} if secret else {"stdout": "", "stderr": ""}
    return RunView(
        id=1,
        mode=mode,
        secret=secret,
        passed=passed,
        score_s=score_s,
        start_time=NOW,
        end_time=NOW + timedelta(seconds=1),
        result={"test-count": "1", "test.0.spec": SECRET_MARK} if secret else (result or {}),
        compilation={"stderr": SECRET_MARK} if secret else compilation,
        meta=mark if meta is None else meta,
        system_info={**SYSTEM, "note": SECRET_MARK} if secret else SYSTEM,
    )


def job(
    *,
    job_id: int = 10,
    gpu_type: str = "CPU",
    mode: Mode = Mode.TEST,
    secret: bool = False,
    state: JobState = JobState.DONE,
    verdict: Verdict | None = Verdict.ACCEPTED,
    attempt: int = 1,
    error: str | None = None,
    progress: Json | None = None,
    runs: tuple[RunView, ...] = (),
    **facts: Any,  # noqa: ANN401 whatever else a job has
) -> JobView:
    """A finished, accepted, public test job unless told otherwise."""
    return JobView(
        id=job_id,
        gpu_type=gpu_type,
        mode=mode,
        secret=secret,
        state=state,
        verdict=verdict if state is JobState.DONE else None,
        attempt=attempt,
        failures=0,
        priority=0,
        cancel_requested=False,
        host="node1",
        error=error,
        progress=progress,
        report={"note": SECRET_MARK} if secret else None,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
        build_ms=1,
        eval_ms=1,
        runs=runs,
        **facts,
    )


def status(
    *,
    submission_id: int = 7,
    state: JobState = JobState.DONE,
    verdict: Verdict | None = Verdict.ACCEPTED,
    score_s: float | None = None,
    position: int | None = None,
    file_name: str = "mine.py",
    user_id: str = "alice",
    user_name: str | None = None,
    **facts: Any,  # noqa: ANN401 whatever else a line has
) -> StatusLine:
    """A line of the queue view."""
    return StatusLine(
        submission_id=submission_id,
        leaderboard="vectoradd",
        user_id=user_id,
        user_name=user_name,
        file_name=file_name,
        submission_time=NOW,
        modes=(Mode.TEST,),
        gpu_types=("CPU",),
        priority=0,
        state=state,
        verdict=verdict if state is JobState.DONE else None,
        done=state is JobState.DONE,
        job_status=None,
        position=position,
        score_s=score_s,
        queue_ms=1,
        build_ms=None,
        eval_ms=None,
        started_at=None,
        finished_at=None,
        **{"error": None, "progress": (), **facts},
    )


def submission(*jobs: JobView, line: StatusLine | None = None) -> SubmissionView:
    """A submission with these jobs."""
    return SubmissionView(status=line or status(), jobs=jobs)
