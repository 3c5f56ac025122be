"""What clients see of a submission: its rows as KernelBot shapes them, and its end as server-sent events tell it. Pure.

Of secret runs only mode and verdict are here; the database hands out no more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from runner.extras.gateway.context import moment
from runner.extras.shown.reports import COMPILATION, META, picked, profile_archive
from runner.store.connection import Row

_SYSTEM: Final = ("gpu", "device_count", "cpu", "runtime", "platform", "torch")
_TOLD: Final = ("test", "benchmark")


def detail(submission: Row, *, runner_queue: object) -> dict[str, Any]:
    """A submission as its owner gets it."""
    return {
        "id": submission["id"],
        "leaderboard_id": submission["leaderboard_id"],
        "leaderboard_name": submission["leaderboard_name"],
        "file_name": submission["file_name"],
        "user_id": submission["user_id"],
        "submission_time": moment(submission["submission_time"]),
        "done": submission["done"],
        "code": source(submission["code"]),
        "runs": [run(row, submission["submission_time"]) for row in submission["runs"] or ()],
        "job": {
            "status": submission["status"],
            "error": submission["error"],
            "last_heartbeat": moment(submission["last_heartbeat"]),
        },
        "runner_queue": runner_queue,
    }


def source(code: bytes | None) -> str:
    """A submission's code as text."""
    return "" if code is None else bytes(code).decode("utf-8", "replace")


def run(row: Row, submitted: datetime) -> dict[str, Any]:
    """One run. That of a secret run has the time of the submission: its own would tell of the secret data."""
    shown: dict[str, Any] = {
        "start_time": _stamp(row["start_time"]) or moment(submitted),
        "end_time": _stamp(row["end_time"]) or moment(submitted),
        "mode": row["mode"],
        "secret": row["secret"],
        "runner": row["gpu_type"],
        "score": row["score"],
        "passed": row["passed"],
    }
    if not row["secret"] and row["mode"] in _TOLD:
        shown["result"] = row["result"]
        meta = picked(row["meta"], META) or {}
        shown["diagnostics"] = {**meta, "compilation": picked(row["compilation"], COMPILATION)}
    return shown


def full_results(submission: Row, profiles: Sequence[Row]) -> list[dict[str, Any]]:
    """The end of a submission as a stream tells it: public runs per GPU type, then secret ones without content.

    A profile without its capture is a failure.
    """
    runs: Sequence[Row] = submission["runs"] or ()
    shown: list[dict[str, Any]] = []
    for secret in (False, True):
        for gpu in dict.fromkeys(row["gpu_type"] for row in runs if row["secret"] is secret):
            mine = [row for row in runs if row["secret"] is secret and row["gpu_type"] == gpu]
            profiled = _profile_metadata(mine)
            errors = [] if profiled is None else [_profile_error(row) for row in mine if not row["passed"]]
            shown.append(
                {
                    "success": not errors,
                    "error": "; ".join(errors),
                    "system": {**(picked(mine[0]["system_info"], _SYSTEM) or {}), "hostname": ""},
                    "runs": {row["mode"]: _evaluation(row, submission["submission_time"], profiles) for row in mine},
                    **({} if profiled is None else {"profile_metadata": profiled}),
                }
            )
    if not shown:
        shown.append({"success": False, "error": submission["error"] or "no result", "system": {}, "runs": {}})
    return shown


def _evaluation(row: Row, submitted: datetime, profiles: Sequence[Row]) -> dict[str, Any]:
    meta = picked(row["meta"], META) or {}
    compiled = None if row["secret"] else picked(row["compilation"], COMPILATION)
    return {
        "start": (_stamp(row["start_time"]) or moment(submitted) or "").removesuffix("Z"),
        "end": (_stamp(row["end_time"]) or moment(submitted) or "").removesuffix("Z"),
        "compilation": None if compiled is None else {**compiled, "command": ""},
        "run": {
            "success": bool(meta.get("success", row["passed"])),
            "passed": row["passed"],
            "command": "",
            "stdout": str(meta.get("stdout", "")),
            "stderr": str(meta.get("stderr", "")),
            "exit_code": meta.get("exit_code", 0),
            "duration": meta.get("duration", 0.0),
            "result": {} if row["secret"] else row["result"] or {},
        },
        "profile": _profile(row, profiles) if row["mode"].startswith("profile") and not row["secret"] else None,
    }


def _profile(row: Row, profiles: Sequence[Row]) -> dict[str, Any] | None:
    """The files of one benchmark as a zip, under the names that KernelBot gives them."""
    archive = profile_archive(row, profiles)
    if archive is None:
        return None
    return {
        "profiler": (row["result"] or {}).get("benchmark.0.runner.profiler", "torch"),
        "trace": base64.b64encode(archive).decode("ascii"),
        "download_url": None,
    }


def _profile_error(row: Row) -> str:
    """Why a profile failed, as far as its result says."""
    result = row["result"] or {}
    errors = (result.get(key) for key in ("benchmark.0.error", "runner.nothing_captured"))
    return f"{row['mode']}: {next(filter(None, errors), 'it did not pass')}"


def _profile_metadata(rows: Sequence[Row]) -> dict[str, Any] | None:
    """What profiles were made of; None: these rows are none."""
    profiled = [row for row in rows if row["mode"].startswith("profile") and not row["secret"]]
    if not profiled:
        return None
    system = profiled[0]["system_info"] if isinstance(profiled[0]["system_info"], Mapping) else {}
    runner = system["runner"] if isinstance(system.get("runner"), Mapping) else {}
    facts = runner["profile"] if isinstance(runner.get("profile"), Mapping) else {}
    return {
        "benchmarks": {
            row["mode"].partition(".")[2]: (row["result"] or {}).get("benchmark.0.spec", "") for row in profiled
        },
        **{key: facts.get(key) for key in ("options", "source_sha256", "config_sha256")},
        "device": system.get("gpu"),
        "versions": {**{key: system.get(key) for key in ("torch", "runtime")}, "kernel-runner": runner.get("version")},
    }


def _stamp(text: str | None) -> str | None:
    return None if text is None else text.replace("+00:00", "Z")
