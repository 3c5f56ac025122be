"""Our own side: real daemons with an evaluator that finds everything accepted at once, in a process of their own.

Everything else is the product: `runner.submit`, the claiming loop, slots, heartbeat, spool and the committed rows.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from runner.config import Config
from runner.daemon import Daemon
from runner.errors import CancelledByRequest
from runner.gpus import Registry
from runner.logs import configure
from runner.model import Job, JobResult, Mode, Progress, RunRecord, Slot, Verdict
from runner.store import Store, Wakeup, migrate
from tests.benchmarks.queue.worker import Notebook, say_ready

PACKAGE: Final = None
OPEN_SQL: Final = "SELECT EXISTS (SELECT FROM runner.job WHERE state IN ('queued', 'running'))"
BOARD: Final = "bench"
#: A submission with this code runs until it is cancelled.
ENDLESS: Final = b"endless"
#: Enough for a few hosts that must not compete.
TYPES: Final = ("CPU", "H100", "H200", "B200", "A100", "L4", "T4", "MI300", "MI250")

_SUBMIT: Final = (
    "SELECT runner.submit(leaderboard => %(board)s, user_id => %(user)s, file_name => 'a.py', code => %(code)s,"
    " mode => %(mode)s, gpu_types => ARRAY[%(gpu_type)s], priority => %(priority)s)"
)
_RUNS: Final = {Mode.TEST: ("test",), Mode.LEADERBOARD: ("test", "benchmark", "leaderboard")}


def install(url: str) -> None:
    """Our schema and a leaderboard."""
    migrate(url)
    store = Store(url, application_name="bench set-up")
    try:
        store.sync_gpu_types(
            [(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in Registry.load().all()]
        )
        store.create_board(
            name=BOARD,
            deadline=datetime.now(UTC) + timedelta(days=1),
            task={"lang": "py"},
            description="",
            gpus=TYPES,
            templates={},
            extra=None,
        )
    finally:
        store.close()


def insert(connection: psycopg.Connection[Any]) -> int:
    """One submission of mode test: one job."""
    return submit(connection)


def submit(
    connection: psycopg.Connection[Any],
    *,
    user: str = "user 0",
    code: bytes = b"pass",
    mode: str = "test",
    gpu_type: str = "CPU",
    priority: int = 0,
) -> int:
    """One submission in the transaction at hand; its id."""
    parameters = {
        "board": BOARD, "user": user, "code": code, "mode": mode, "gpu_type": gpu_type, "priority": priority,
    }  # fmt: skip
    found = connection.execute(_SUBMIT, parameters).fetchone()
    if found is None:
        raise RuntimeError("runner.submit returned nothing")
    return int(found[0])


def preload(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Submissions of mode test, one job each, of a hundred users."""
    for number in range(jobs):
        submit(connection, user=f"user {number % 100}")


def preload_ranked(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Ranked submissions, two jobs each, of a hundred users."""
    for number in range(jobs // 2):
        submit(connection, user=f"user {number % 100}", mode="leaderboard")


class AtOnce:
    """Accepts every job at once; an endless one runs until it is cancelled."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Nothing to prepare."""

    def run(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> JobResult:
        """What an evaluation of this mode writes: a row per run, with a result, and a score if ranked."""
        self._notebook.note("start", job.submission_id)
        if job.code == ENDLESS:
            cancel.wait()
            self._notebook.note("stop", job.submission_id)
            raise CancelledByRequest("told to")
        runs = tuple(_run(mode, ranked=job.mode is Mode.LEADERBOARD) for mode in _RUNS[job.mode])
        return JobResult(
            verdict=Verdict.ACCEPTED, runs=runs, error=None, report={"slot": slot.name}, build_ns=1, eval_ns=1
        )


def _run(mode: str, *, ranked: bool) -> RunRecord:
    result = {"check": "pass"}
    if mode != "test":
        result |= {"benchmark-count": "1", "benchmark.0.mean": "1000000.0", "benchmark.0.std": "1.0"}
    return RunRecord(
        mode=mode,
        start_offset_ns=0,
        end_offset_ns=1_000_000,
        passed=True,
        score_s=0.001 if ranked and mode == "leaderboard" else None,
        compilation=None,
        meta={"stdout": "", "stderr": "", "success": True, "exit_code": 0, "command": "", "duration": 0.001},
        result=result,
        system_info={"gpu": "none", "cpu": "none", "torch": "none"},
    )


class NoEngine:
    """A container engine that is always there and has nothing to do."""

    def check(self) -> None:
        """It answers."""

    def reap(self) -> int:
        """Nothing is left over."""
        return 0


class DeafStore(Store):
    """A database that announces nothing."""

    def listen(self, *, stop: threading.Event, timeout_s: float) -> Wakeup | None:
        """Hear nothing."""
        stop.wait(min(timeout_s, 1.0))
        return None
