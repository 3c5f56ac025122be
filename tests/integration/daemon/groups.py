"""An evaluation of groups that looks at the candidates' text only, for tests of all that is around it.

As a program it is a daemon that serves a database until it is killed:
`python -m tests.integration.daemon.groups URL SETTINGS JOURNAL`. Before each evaluation it appends a line to the
journal: job, attempt, when it was claimed, items and the time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from runner.base.model import Job, JobResult, Progress, Slot
from runner.extras.trainers.kinds.module import group_result

SLOT = Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0,))
#: What the harness reports of a candidate whose text says nothing else.
FOUND: dict[str, Any] = {
    "verdict": "accepted",
    "stage": "done",
    "compiled": True,
    "correct": True,
    "kb_correct": True,
    "message": "it is right",
    "reference_ns": 2000.0,
    "candidate_ns": 1000.0,
    "speedup": 2.0,
    "speedup_low": 1.9,
    "speedup_high": 2.1,
    "timing": "measured",
    "flags": ["no_custom_kernel"],
}


def find(candidate: dict[str, Any]) -> dict[str, Any]:
    """What is found of a candidate: a line `# found: {...}` changes what is reported."""
    changes: dict[str, Any] = {}
    for line in candidate["code"].splitlines():
        if line.startswith("# found: "):
            changes = json.loads(line.removeprefix("# found: "))
    return {**FOUND, "id": candidate["id"], **changes}


def looking(pause_s: float = 0.0) -> Callable[..., JobResult]:
    """A script for the rig's evaluator; each candidate takes so long."""

    def script(job: Job, _cancel: threading.Event, _on_progress: Callable[[Progress], None]) -> JobResult:
        time.sleep(pause_s * len(job.task["candidates"]))
        return group_result(job, SLOT.name, [find(candidate) for candidate in job.task["candidates"]], eval_ns=1)

    return script


def noting(script: Callable[..., JobResult], journal: Path) -> Callable[..., JobResult]:
    """A script that writes down what it is asked for, and does what another one does."""

    def noted(job: Job, *given: Any) -> JobResult:  # noqa: ANN401 - handed through
        items = [candidate["id"] for candidate in job.task["candidates"]]
        claimed = {"job": job.id, "attempt": job.attempt, "claimed": job.started_at.isoformat()}
        line = {**claimed, "items": items, "at": time.time()}
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return script(job, *given)

    return noted


def known(url: str) -> bool:
    """Whether the GPU type is published."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT FROM runner.gpu_type WHERE name = 'CPU'").fetchone() is not None


if __name__ == "__main__":
    from tests.integration.daemon.rig import Rig

    served = Rig(sys.argv[1], **json.loads(sys.argv[2]))
    served.evaluator.script = noting(looking(0.002), Path(sys.argv[3]))
    served.start()
    sys.stdin.read()
