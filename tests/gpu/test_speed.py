"""The official shapes of every task that fit the device: the reference and the sample solutions are right, and timed.

Runs after everything else in this folder, so that nothing else is on the device.
"""

from __future__ import annotations

import os
import time

import pytest
import torch

from tests.gpu.bench import Machine, Task, judge, task_of, tasks, time_task, too_large, verdict_of
from tests.gpu.recording import measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

#: What a ranked evaluation may take beside its timed calls on a device of an H200's class, in seconds.
BESIDE_S = 10.0
#: The CPU type's cases instead: for trying these tests themselves.
SMALL = bool(os.environ.get("KERNEL_RUNNER_GPU_SMALL"))


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_the_official_shapes_are_right_and_timed(task: Task, machine: Machine) -> None:
    """Reference and right solutions are accepted in every case, at times that the device's figures allow."""
    reason = None if SMALL and task.small_ranks is None else too_large(task, machine)
    if reason is not None:
        pytest.skip(reason)
    lines, verdicts = time_task(task, machine, small=SMALL)
    refused = {name: found for name, found in verdicts.items() if found.verdict != "accepted"}
    assert not refused, "\n".join(f"{name}: {found.verdict}: {found.message}" for name, found in refused.items())
    for line in lines:
        assert line.best_ns is not None
        assert line.best_ns > 0
        # More than the data sheet by a half is no speed, but a mistake in the figures, the work or the clock.
        assert line.light is None or line.best_ns > line.light[0] / 1.5, line


def test_what_a_ranked_evaluation_takes_beside_its_timed_calls(machine: Machine, audited: list[str]) -> None:
    """Of nvfp4_gemm, from the start of judge and worker to the verdict. A figure: no time makes this test fail."""
    task = task_of("nvfp4_gemm")
    tests, lines = (task.small_tests, task.small_benchmarks) if SMALL else (task.tests, task.benchmarks)
    if not SMALL and too_large(task, machine) is not None:
        pytest.skip(str(too_large(task, machine)))
    code = task.right[0].read_text(encoding="utf-8")
    began = time.monotonic()
    steps = judge(task, code, {"test": tests, "leaderboard": lines}, machine, keeps=True)
    whole_s = time.monotonic() - began
    assert verdict_of(steps).verdict == "accepted", verdict_of(steps).message
    cases = [case for step in steps if step.judged is not None for case in step.judged.details.get("cases", ())]
    timed_s = sum(claim for case in cases for claim, _, _ in case["samples"]) / 1e9
    assert len(cases) == len(lines)
    assert timed_s > 0
    measured("a ranked nvfp4_gemm, beside its timed calls", whole_s - timed_s, at_most_s=BESIDE_S)
    audited.append(f"a ranked nvfp4_gemm: {whole_s:.1f} s, of which {timed_s:.1f} s are its timed calls")
