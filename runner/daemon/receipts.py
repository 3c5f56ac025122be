"""The statement that this host signs of an accepted ranked result, and its key, in a file that no container has."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Final

from runner.base.durable import write_whole
from runner.base.errors import ConfigError
from runner.base.model import Job, JobResult, Json, Mode, RunRecord, SubmissionJob, Verdict
from runner.base.receipts import FORMAT, Signer, canonical
from runner.base.results import cases

_SYSTEM: Final = ("gpu", "device_count", "cpu", "runtime", "platform", "torch")


def signer(state_dir: Path) -> Signer:
    """The key in the directory's file `receipt.key`; made when there is none.

    Raises:
        ConfigError: the file cannot be read or written, or holds no key.
    """
    path = state_dir / "receipt.key"
    try:
        if not path.exists():
            write_whole(path, secrets.token_hex(32), mode=0o600)
        return Signer(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the daemon's user must be able to read and write it") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no key of 32 bytes; remove it, and the daemon makes another") from error


def with_receipt(job: Job, result: JobResult, *, host: str, signer: Signer) -> JobResult:
    """The result; that of an accepted ranked job with its receipt."""
    run = next((run for run in result.runs if run.mode == Mode.LEADERBOARD), None)
    if not isinstance(job, SubmissionJob) or job.mode is not Mode.LEADERBOARD or result.verdict is not Verdict.ACCEPTED:
        return result
    if run is None:
        return result
    return replace(result, receipt=signer.sign(canonical(_statement(job, run, host))))


def _statement(job: SubmissionJob, run: RunRecord, host: str) -> Json:
    ended_at = job.started_at.astimezone(UTC) + timedelta(microseconds=run.end_offset_ns // 1000)
    if job.secret:
        # A submission could run for as long as its secret data say; runner.status rounds, too.
        ended_at = (ended_at + timedelta(microseconds=999_999)).replace(microsecond=0)
    return {
        "format": FORMAT,
        "host": host,
        "submission_id": job.submission,
        "user_id": job.user_id,
        "leaderboard": job.leaderboard,
        "gpu_type": job.gpu_type,
        "run": "secret" if job.secret else "public",
        "job_id": job.id,
        "attempt": job.attempt,
        "evaluated_at": ended_at.isoformat(timespec="microseconds"),
        "verdict": Verdict.ACCEPTED.value,
        "code_sha256": hashlib.sha256(job.code).hexdigest(),
        # Without hidden cases: those could be guessed, and guesses compared.
        "task_sha256": hashlib.sha256(
            canonical({"task": job.task, "runner.yml": _shown(job.extra)}).encode()
        ).hexdigest(),
        "harness": str(run.system_info.get("runner", {}).get("harness")),
        **({} if job.secret else _public(run)),
    }


def _public(run: RunRecord) -> Json:
    """What a public run has beside that. Of a secret run nobody is told more than its verdict."""
    runner = run.system_info.get("runner", {})
    assurance = runner.get("assurance", {})
    return {
        # What is less than the board demands may rank when that changes.
        "score_s": runner["unranked"]["score_s"] if "unranked" in runner else run.score_s,
        "timing": assurance.get("timing", "claimed"),
        "correctness": assurance.get("correctness", "in_process"),
        "cases": [
            {name: getattr(case, name) for name in ("mean_ns", "mean_ci95_ns", "bounds_ns", "timing")}
            for case in cases(run.result)
            if case.kind == "benchmark"
        ],
        "system": {name: str(run.system_info.get(name)) for name in _SYSTEM}
        | {
            "kernel_runner": str(runner.get("version")),
            "devices": [
                {name: str(one.get(name)) for name in ("uuid", "name", "driver")} for one in runner.get("devices", ())
            ],
        },
    }


def _shown(value: object) -> object:
    return (
        {key: _shown(item) for key, item in value.items() if key != "hidden"} if isinstance(value, Mapping) else value
    )
