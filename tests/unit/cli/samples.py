"""Store records that the tests of views and pages start from."""

from __future__ import annotations

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
_RUN: dict[str, Any] = {
    "id": 1, "mode": "test", "secret": False, "passed": True, "score_s": None, "start_time": NOW,
    "end_time": NOW + timedelta(seconds=1), "result": {}, "compilation": None, "meta": {"stdout": "", "stderr": ""},
    "system_info": SYSTEM,
}  # fmt: skip
#: SECRET_MARK wherever text can be.
_SECRET_RUN: dict[str, Any] = {
    **_RUN, "secret": True, "meta": {"stdout": SECRET_MARK, "stderr": SECRET_MARK},
    "result": {"test-count": "1", "test.0.spec": SECRET_MARK}, "compilation": {"stderr": SECRET_MARK},
    "system_info": {**SYSTEM, "note": SECRET_MARK},
}  # fmt: skip
_JOB: dict[str, Any] = {
    "id": 10, "gpu_type": "CPU", "mode": Mode.TEST, "secret": False, "state": JobState.DONE, "attempt": 1,
    "failures": 0, "priority": 0, "cancel_requested": False, "host": "node1", "error": None, "progress": None,
    "created_at": NOW, "started_at": NOW, "finished_at": NOW, "build_ms": 1, "eval_ms": 1, "runs": (),
}  # fmt: skip
_STATUS: dict[str, Any] = {
    "submission_id": 7, "leaderboard": "vectoradd", "user_id": "alice", "user_name": None, "file_name": "mine.py",
    "submission_time": NOW, "modes": (Mode.TEST,), "gpu_types": ("CPU",), "priority": 0, "state": JobState.DONE,
    "job_status": None, "position": None, "score_s": None, "queue_ms": 1, "build_ms": None, "eval_ms": None,
    "started_at": None, "finished_at": None, "error": None, "progress": (),
}  # fmt: skip


def run(**changes: Any) -> RunView:  # noqa: ANN401 its fields
    """A row of results; a secret one carries SECRET_MARK."""
    return RunView(**{**(_SECRET_RUN if changes.get("secret") else _RUN), **changes})


def job(*, verdict: Verdict = Verdict.ACCEPTED, **changes: Any) -> JobView:  # noqa: ANN401 its fields
    """A finished, accepted, public test job unless told otherwise; one that is not finished has no verdict."""
    facts = {**_JOB, **changes}
    facts["verdict"] = verdict if facts["state"] is JobState.DONE else None
    return JobView(report={"note": SECRET_MARK} if facts["secret"] else None, **facts)


def status(*, verdict: Verdict | None = Verdict.ACCEPTED, **changes: Any) -> StatusLine:  # noqa: ANN401 its fields
    """A line of the queue view; one that is not done has no verdict."""
    facts = {**_STATUS, **changes}
    done = facts["state"] is JobState.DONE
    return StatusLine(verdict=verdict if done else None, done=done, **facts)


def submission(*jobs: JobView, line: StatusLine | None = None) -> SubmissionView:
    """A submission with these jobs."""
    return SubmissionView(status=line or status(), jobs=jobs)
