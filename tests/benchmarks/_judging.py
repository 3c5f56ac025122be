"""What the benchmarks of the judge share: a kernel that takes as long as its case says, and evaluations of it.

Real judge, real worker, real messages and flags; no container, no database. Processes are forked from ones that have
imported torch, as containers wait with it imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.protocol import StepResult
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges

#: Inputs are a tensor and the nanoseconds to spend; the tensor is wanted back as it is.
REFERENCE = """
import torch


def generate_input(spin_ns, size, seed):
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(size, generator=generator), "spin_ns": spin_ns}


def check_implementation(data, output):
    return "" if torch.equal(output, data["x"]) else "wrong values"
"""

#: Looks at a clock until so much has passed since its first line: its time is known, whatever the machine does.
HONEST = """
from time import perf_counter_ns


def custom_kernel(data):
    until = perf_counter_ns() + data["spin_ns"]
    output = data["x"].clone()
    while perf_counter_ns() < until:
        pass
    return output
"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One benchmark case: the numbers that are reported, and what the judge says of them."""

    result: Mapping[str, str]
    details: Mapping[str, Any]

    def number(self, name: str) -> float:
        """One of the reported statistics, in nanoseconds."""
        return float(self.result[name])


#: Inputs of any size. Outputs are a few numbers, sums of rows, or a copy of the input.
ROWS_REFERENCE = """
import torch


def generate_input(spin_ns, size, seed):
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.rand(size, generator=generator), "spin_ns": spin_ns}


def check_implementation(data, output):
    if output.shape == data["x"].shape:
        return "" if torch.equal(output, data["x"]) else "wrong values"
    return "" if torch.allclose(output, data["x"].view(8, -1).sum(1), rtol=1e-3) else "wrong values"
"""

#: What a kernel returns: sums of rows, or a copy of the input in memory that it keeps.
SUMS, COPY = (
    'data["x"].view(8, -1).sum(1)',
    '(kept := torch.empty_like(data["x"]) if kept is None else kept).copy_(data["x"])',
)
#: Takes as long as its case says, from its first line on, or as long as reading the input takes.
ROWS = """
import sys
import time

import torch

perf_counter_ns = time.perf_counter_ns
random = __import__("random").Random(1)
worker = sys.modules["tasks.harness.worker.main"]
calls = 0
claim = kept = None


def clock():
    # The worker's clock: after a kernel whose claim is to be lowered it says less.
    global claim
    now = perf_counter_ns()
    if claim is not None:
        (start, part), claim = claim, None
        now = start + int(part * (now - start))
    return now


def part_of(call):
    return {part}


if {forged}:
    worker.perf_counter_ns = clock


def custom_kernel(data):
    global calls, claim, kept
    start = perf_counter_ns()
    output = {output}
    while perf_counter_ns() < start + data["spin_ns"]:
        pass
    calls += 1
    if {forged}:
        claim = start, part_of(calls)
    return output
"""


def rows_of(part: str | None, *, output: str = SUMS) -> str:
    """A submission that returns `output`, and claims this part of its time; None: all of it, and honestly."""
    lowered = ROWS.replace("{part}", part or "1.0").replace("{forged}", str(part is not None))
    return lowered.replace("{output}", output)


def request_of(
    submission: str,
    cases: Sequence[str],
    *,
    mode: str = "benchmark",
    reference: str = REFERENCE,
    timing: Timing | None = None,
) -> JudgeRequest:
    """What the judge is asked."""
    return JudgeRequest(
        modes=(ModeRequest(name=mode, cases=tuple(cases), timeout_s=1800.0, timing=timing),),
        files={"reference.py": reference},
        worker_files=(),
        submission_name="submission.py",
        submission=submission,
    )


def spin_case(spin_ns: int, *, size: int = 16) -> str:
    """The line of a case that takes so long, with so many floats to hand over."""
    return f"spin_ns: {spin_ns}; size: {size}; seed: 1"


def judge(processes: ForkedJudges, request: JudgeRequest) -> StepResult:
    """The one step of a request.

    Raises:
        RuntimeError: it was not accepted.
    """
    step = processes.evaluate(request).steps[0]
    if step.judged is None or step.judged.verdict != "accepted":
        raise RuntimeError(f"expected the verdict accepted, found {step.judged}")
    return step


def cases_of(step: StepResult) -> list[Judged]:
    """The benchmark cases of a step."""
    if step.judged is None:
        raise RuntimeError(f"step {step.name} came without a verdict")
    return [
        Judged(
            result={
                key.removeprefix(f"benchmark.{index}."): value
                for key, value in lines_of(step).items()
                if key.startswith(f"benchmark.{index}.")
            },
            details=details,
        )
        for index, details in enumerate(step.judged.details["cases"])
    ]


def machine() -> str:
    """Cores and load, for the head of a table."""
    return f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.1f}"
