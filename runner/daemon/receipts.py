"""The receipts that this host signs, and its private key, a file of the state directory that no container has."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, Final

from runner.base.durable import sync_directory
from runner.base.errors import ConfigError
from runner.base.model import JobResult, Json, Mode, RunRecord, SubmissionJob, Verdict
from runner.base.receipts import FORMAT, Signer
from runner.base.results import cases

_KEY_BYTES: Final = 32
_SYSTEM: Final = ("gpu", "device_count", "cpu", "runtime", "platform", "torch")
_DEVICE: Final = ("uuid", "name", "driver")
#: What a program may have put into a text is cut after this.
_CHARACTERS: Final = 200


def signer(state_dir: Path) -> Signer:
    """The key in the directory's file `receipt.key`; made when there is none.

    Raises:
        ConfigError: the file cannot be read or written, or holds no key.
    """
    path = state_dir / "receipt.key"
    try:
        if not path.exists():
            _write(path, secrets.token_bytes(_KEY_BYTES).hex())
        return Signer(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the daemon's user must be able to read and write it") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no key of {_KEY_BYTES} bytes; remove it, and the daemon makes another") from error


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for this user alone."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def with_receipt(job: object, result: JobResult, *, host: str, signer: Signer) -> JobResult:
    """The result; that of an accepted ranked job with its receipt."""
    if not isinstance(job, SubmissionJob) or job.mode is not Mode.LEADERBOARD:
        return result
    run = next((run for run in result.runs if run.mode == "leaderboard"), None)
    if result.verdict is not Verdict.ACCEPTED or run is None or not (job.secret or _score_s(run)):
        return result
    ended_at = job.started_at.astimezone(UTC) + timedelta(microseconds=run.end_offset_ns // 1000)
    if job.secret:
        # A submission could run for as long as its secret data say; runner.status rounds, too.
        ended_at = (ended_at + timedelta(microseconds=999_999)).replace(microsecond=0)
    statement = {
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
        "verdict": result.verdict.value,
        "code_sha256": hashlib.sha256(job.code).hexdigest(),
        "task_sha256": _task_sha256(job.task, job.extra),
        "harness": _cut(_runner(run).get("harness")),
        **({} if job.secret else _public(run)),
    }
    return replace(result, receipt=signer.sign(statement))


def _public(run: RunRecord) -> Mapping[str, Any]:
    runner = _runner(run)
    devices = [device for device in runner.get("devices", ()) if isinstance(device, Mapping)]
    assurance = runner.get("assurance", {})
    return {
        "score_s": _score_s(run),
        "timing": _cut(assurance.get("timing", "claimed")),
        "correctness": _cut(assurance.get("correctness", "in_process")),
        "cases": [
            {
                "mean_ns": case.mean_ns,
                "mean_ci95_ns": case.mean_ci95_ns,
                "bounds_ns": case.bounds_ns,
                "timing": None if case.timing is None else _cut(case.timing),
            }
            for case in cases(run.result)
            if case.kind == "benchmark"
        ],
        "system": {
            **{name: _cut(run.system_info[name]) for name in _SYSTEM if name in run.system_info},
            "kernel_runner": _cut(runner.get("version")),
            "devices": [{name: _cut(device.get(name)) for name in _DEVICE} for device in devices],
        },
    }


def _score_s(run: RunRecord) -> float | None:
    """The score, also one that is less than the board demands: it may rank when that changes."""
    score_s = run.score_s if run.score_s is not None else _runner(run).get("unranked", {}).get("score_s")
    return None if score_s is None else float(score_s)


def _runner(run: RunRecord) -> Json:
    found = run.system_info.get("runner")
    return found if isinstance(found, Mapping) else {}


def _cut(value: object) -> str:
    return "" if value is None else str(value)[:_CHARACTERS]


def _task_sha256(task: Json, extra: Json | None) -> str:
    """The hash of a task as stored, without its hidden cases: those could be guessed, and guesses compared."""

    def shown(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: shown(item) for name, item in value.items() if name != "hidden"}
        return value

    text = json.dumps({"task": task, "runner.yml": shown(extra)}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
