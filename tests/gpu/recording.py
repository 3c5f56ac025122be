"""What is kept of an evaluation on a device, as JSON: the calibration, and for each case every timed call.

`tests/unit/harness/test_device_costs.py` replays such records through the audit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sandbox.protocol import StepResult
from tasks.harness.local import lines_of
from tasks.harness.roles import MODULES

ROOT: Final = Path(__file__).resolve().parents[2]
_PATH: Final = "import sys; sys.path.insert(0, sys.argv[1]); "
_START: Final = {
    **{role: f"from {module} import main" for role, module in MODULES.items()},
    "judge": "from tests.gpu.samples import keep_samples; keep_samples(); from tasks.harness.judge.main import main",
}
#: Rows and figures of the test that runs now.
_kept: list[dict[str, Any]] = []
_figures: list[dict[str, Any]] = []


def start(
    role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a process of a role; a judge keeps its samples (see `tasks.harness.local.Start`)."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"{_PATH}{_START[role]}; sys.exit(main())", str(ROOT)],
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(keep),
        start_new_session=True,
    )


def keep(what: str, steps: Sequence[StepResult]) -> Sequence[StepResult]:
    """Keep the steps that timed something for the record of the test that runs now; the steps.

    Args:
        what: ran. With the word `forged` in it, its claims are lower than its times.
        steps: of an evaluation whose judge kept its samples.
    """
    details = [step.judged.details for step in steps if step.judged is not None]
    # The first step says whether calls can be marked, for all.
    common = next((told for told in details if "gate" in told), {})
    timed = [step for step in steps if step.judged is not None and step.judged.details.get("cases")]
    _kept.extend(row(what, step, common) for step in timed)
    return steps


def taken() -> Sequence[dict[str, Any]]:
    """The rows that were kept since the last call."""
    found = list(_kept)
    _kept.clear()
    return found


def measured(what: str, value_s: float, *, at_most_s: float) -> None:
    """Keep a figure for which there is a target; the summary at the end says whether it was reached."""
    _figures.append({"what": what, "value_s": round(value_s, 3), "at_most_s": at_most_s})


def figures() -> Sequence[dict[str, Any]]:
    """The figures that were kept since the last call."""
    found = list(_figures)
    _figures.clear()
    return found


def append(record: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a record, on a line of its own even if the last one was cut off."""
    with record.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")


def read(record: Path) -> list[dict[str, Any]]:
    """The lines of a record, without those that were cut off when a machine was lost or a layer's time was over."""
    lines = record.read_bytes().splitlines() if record.exists() else []
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def rows_of(line: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The evaluations in a line of a record: that of a test, or one of `h100_calls.jsonl`, whose lines are one each."""
    if "hand_over_ns" in line:
        return [line]
    return [{**found, "what": f"{line['test']}: {found['what']}"} for found in line.get("evaluations", ())]


def row(what: str, step: StepResult, common: Mapping[str, Any]) -> dict[str, Any]:
    """One evaluation: a step that timed something, and the details of the evaluation's first step."""
    told: Mapping[str, Any] = {**common, **({} if step.judged is None else step.judged.details)}
    device = told.get("calibration", {}).get("device", {})
    return {
        "what": what,
        "verdict": None if step.judged is None else step.judged.verdict,
        "gate": told.get("gate"),
        "hand_over_ns": [device.get(name) for name in ("p25_ns", "median_ns", "p75_ns")],
        "dirty_ns": device.get("dirty_ns"),
        "took_ns": {name: told.get(name) for name in ("prepare_ns", "calibrate_ns", "load_ns")}
        | {"step": step.duration_ns},
        "cases": [
            {
                "case": lines_of(step).get(f"benchmark.{index}.spec"),
                **{name: case.get(name) for name in ("samples", "output_bytes", "timing", "contradicted")},
            }
            for index, case in enumerate(told.get("cases", []))
        ],
    }
