"""Times kernels of many lengths and sizes on this device, honest ones and forged ones, and keeps every call.

    python -m tests.gpu.record FILE [SECONDS]

Appends a JSON line per evaluation to FILE: what ran, quartiles of the calibration, and for each case its line and its
samples: claim and span in nanoseconds, and whether the call was exclusive. `tests/unit/harness/test_device_costs.py`
replays such a record. Prints a table. Solutions of the tasks come last; none begins after SECONDS (600).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.protocol import StepResult
from tasks.harness import local
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.local import lines_of
from tests.gpu.bench import ROOT, Machine, tasks
from tests.gpu.recording import append, row, start
from tests.gpu.test_audit import BUSY_THREAD, FORGES, OCCUPIED, REFERENCE, SYNCHRONISES, TORCH, TRITON, cycles

_HALF = FORGES.replace("honest(self, other) - HIDDEN_US / 1e3", "honest(self, other) / 2")
_LENGTHS_US = (20, 40, 100, 300, 1000, 7000)
_SIZES_KIB = (4, 64, 256, 1024, 4096, 32768, 131072)


def evaluations() -> Iterator[tuple[str, JudgeRequest]]:
    """What runs: a name, and the request."""
    lengths = [(4096, cycles(length)) for length in _LENGTHS_US]
    yield "torch", _request(TORCH, [(4096, 1), (4096, 8), (4096, 60), (1 << 20, 8)])
    yield "triton", _request(TRITON, [(4096, 1), (4096, 30), (4096, 300), (1 << 20, 300)])
    yield "sizes", _request(TORCH, [(kib << 8, 1) for kib in _SIZES_KIB])
    yield "lengths", _request(FORGES.replace("HIDDEN_US", "0"), lengths)
    yield "lengths, forged to a half", _request(_HALF, lengths)
    yield "lengths, forged by 10 µs", _request(FORGES.replace("HIDDEN_US", "10"), lengths)
    for name, code in (("synchronises", SYNCHRONISES), ("busy thread", BUSY_THREAD), ("occupied", OCCUPIED)):
        yield name, _request(code, [(4096, cycles(100))])
    for task in tasks():
        for path in task.solutions("correct") if task.small_ranks is None else ():
            yield (
                f"{task.name}/{path.stem}",
                JudgeRequest(
                    modes=(ModeRequest(name="benchmark", cases=tuple(task.small_benchmarks), timeout_s=60.0),),
                    files={name: (ROOT / file).read_text(encoding="utf-8") for name, file in task.files.items()},
                    worker_files=tuple(task.worker_files),
                    submission_name=task.submission_name,
                    submission=path.read_text(encoding="utf-8"),
                    seed=task.seed,
                    device="cuda",
                    memory_bytes=Machine.here().memory_bytes,
                ),
            )


def _request(code: str, cases: Sequence[tuple[int, int]]) -> JudgeRequest:
    lines = tuple(f"size: {size}; rounds: {rounds}; seed: {seed}" for seed, (size, rounds) in enumerate(cases, start=7))
    return JudgeRequest(
        modes=(ModeRequest(name="benchmark", cases=lines, timeout_s=120.0),),
        files={"reference.py": REFERENCE},
        worker_files=(),
        submission_name="submission.py",
        submission=code,
        device="cuda",
        memory_bytes=8 << 30,
    )


def table(step: StepResult) -> Iterator[str]:
    """A line per case, times in microseconds."""
    if step.judged is None or step.judged.verdict != "accepted":
        yield f"   {step.judged}"
        return
    for index, case in enumerate(step.judged.details["cases"]):
        prefix = f"benchmark.{index}."
        yield _line(lines_of(step)[f"{prefix}spec"], case, float(lines_of(step)[f"{prefix}mean"]))


def _line(what: str, case: Mapping[str, Any], mean_ns: float) -> str:
    times = {
        "mean": mean_ns,
        "claim": case["claimed_median_ns"],
        "span": case["outside_median_ns"],
        "excess": case["excess_ns"] or 0,
        "noise": case["noise_ns"] or 0,
    }
    return (
        f"   {what[:44]:44} {'  '.join(f'{name} {time / 1e3:9.2f}' for name, time in times.items())}  "
        f"not exclusive {case['not_exclusive']} of {case['calls']}  {case['timing']}"
        f"{' contradicted' if case['contradicted'] else ''}"
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="gets a line per evaluation")
    parser.add_argument("seconds", nargs="?", type=float, default=600.0, help="none begins after them (%(default)g)")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    for what, request in evaluations():
        if time.monotonic() > until:
            break
        (step,) = local.evaluate(request, start=start).steps
        append(given.file, row(what, step, {}))
        sys.stdout.write("\n".join([what, *table(step)]) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
