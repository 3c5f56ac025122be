"""Batches: many calls of the kernel between two events, with an input each.

On a device whose time is virtual, where figures are exact (see `test_device_calls`), and on the CPU.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges

from .conftest import make_request, message_of, verdict_of
from .test_device_calls import FORGED, HONEST, accepted, benchmark

BATCH = Timing(mode="batch", batch_size=12, max_runs=6)
BOTH = replace(BATCH, mode="both")
KERNEL_NS = 10_000
#: What an emulated batch of twelve costs, by kernel.
TRUTH_NS = pytest.approx(KERNEL_NS, abs=1)
#: Right but for one call in every batch: the last of twelve, after two single calls to warm up and one for the room.
WRONG_ONCE = (
    HONEST
    + """

honest, calls = custom_kernel, []


def custom_kernel(data):
    calls.append(1)
    # Every call is made twice on the emulated device: to learn the shape, and in its stream.
    return honest(data) * (0.0 if len(calls) > 60 and len(calls) % 12 == 0 else 1.0)
"""
)
#: Gives the same memory back for every call.
ONE_BUFFER = """
import torch

buffer = []


def custom_kernel(data):
    if not buffer:
        buffer.append(torch.empty_like(data[0]))
    return buffer[0].copy_(data[0] + data[1])
"""


def test_a_batch_of_short_kernels_is_audited_where_single_calls_are_not() -> None:
    """The hand-over is in a batch once, so twelve kernels of 10 us are bounded like one of 120."""
    step = benchmark(HONEST, kernel_ns=KERNEL_NS, timing=BOTH)
    single = accepted(step)
    batch = single["batch"]
    assert batch["timing"] == "audited"
    assert (batch["batch_size"], batch["calls"], batch["checked"]) == (12, 6, 8)
    assert batch["claimed_median_ns"] == pytest.approx(12 * KERNEL_NS, abs=10)
    assert abs(batch["excess_ns"]) < 10
    result = lines_of(step)
    assert result["benchmark.0.runner.batch_size"] == "12"
    assert "benchmark.0.runner.batch_lowered" not in result
    assert result["benchmark.0.runner.batch.timing"] == "audited"
    assert float(result["benchmark.0.runner.batch.mean"]) == TRUTH_NS
    assert result["benchmark.0.runner.batch.runs"] == "6"
    assert result["benchmark.0.runner.timing"] == single["timing"]
    assert float(result["benchmark.0.mean"]) == pytest.approx(KERNEL_NS, abs=10)


def test_batches_alone_are_the_times_that_rank() -> None:
    """By the keys that single calls have otherwise."""
    step = benchmark(HONEST, kernel_ns=KERNEL_NS, timing=BATCH)
    assert accepted(step)["batch_size"] == 12
    assert float(lines_of(step)["benchmark.0.mean"]) == TRUTH_NS
    assert lines_of(step)["benchmark.0.runner.timing"] == "audited"
    assert step.judged is not None
    assert step.judged.assurance["timing"] == "audited"
    assert not [key for key in lines_of(step) if ".batch." in key]
    low, high = json.loads(lines_of(step)["benchmark.0.runner.interval"])
    assert low <= float(lines_of(step)["benchmark.0.mean"]) <= high
    assert high - low < 200


def test_a_forged_batch_ranks_with_its_true_time() -> None:
    """Half of each claim: the judge's clock counts, and is exact."""
    step = benchmark(FORGED, kernel_ns=KERNEL_NS, timing=BATCH)
    case = accepted(step)
    assert (case["timing"], case["contradicted"]) == ("measured", True)
    assert float(lines_of(step)["benchmark.0.mean"]) == TRUTH_NS


def test_a_forged_batch_beside_single_calls_is_rejected_where_the_type_says_so() -> None:
    """Each claim is a quarter of 3.6 ms, far less than must have passed. A single one is too short to be rejected."""
    forged = FORGED.replace("/ 2", "/ 4")
    judged = benchmark(forged, kernel_ns=300_000, rejects=True, timing=BOTH).judged
    assert judged is not None
    assert judged.verdict == "rejected"
    assert "on the judge's clock" in str(judged.message)
    assert "batch" in judged.details["cases"][0]


def test_every_output_of_a_batch_is_checked() -> None:
    """One wrong output of twelve refuses the submission."""
    judged = benchmark(WRONG_ONCE, timing=BATCH).judged
    assert judged is not None
    assert judged.verdict == "wrong_answer"
    assert "in a batch: the sums are wrong" in str(judged.message)


def test_a_batch_is_as_large_as_the_memory_allows() -> None:
    """Inputs are there twice and outputs three times: 5 MiB for each call, of 32 MiB."""
    step = benchmark(HONEST, size=256 << 10, kernel_ns=KERNEL_NS, timing=BATCH, memory_bytes=32 << 20)
    assert accepted(step)["batch_size"] == 6
    assert lines_of(step)["benchmark.0.runner.batch_size"] == "6"
    assert "6 calls, not 12" in lines_of(step)["benchmark.0.runner.batch_lowered"]
    assert float(lines_of(step)["benchmark.0.mean"]) == TRUTH_NS


def here(processes: ForkedJudges, code: str | None = None, timing: Timing = BATCH) -> StepResult:
    """Time a case on the CPU, with a right submission or other code."""
    request = make_request("add_right", modes=("benchmark",))
    (mode,) = request.modes
    modes = (replace(mode, timing=timing),)
    (step,) = processes.evaluate(replace(request, modes=modes, submission=code or request.submission)).steps
    return step


def test_batches_on_a_processor_go_by_flags(processes: ForkedJudges) -> None:
    """With control calls that hand over as much, and an output of each call."""
    step = here(processes, timing=BOTH)
    assert verdict_of(step) == "accepted", message_of(step)
    assert step.judged is not None
    single = step.judged.details["cases"][0]
    assert "batch_size" not in single
    batch = single["batch"]
    assert batch["batch_size"] == 12
    # Beside the two that warm up. Those that other processes disturbed were made again.
    assert batch["checked"] - 2 == batch["calls"] >= 6
    # Where it was too noisy for the claims, batches were timed again, and all of them may count together.
    assert int(lines_of(step)["benchmark.0.runner.batch.runs"]) in range(6, 6 * (2 + batch["timed_again"]), 6)
    assert float(lines_of(step)["benchmark.0.runner.batch.mean"]) > 0


def test_one_buffer_for_all_outputs_of_a_batch_is_wrong(processes: ForkedJudges) -> None:
    """Each output must still be there when the last call has returned."""
    step = here(processes, ONE_BUFFER)
    assert verdict_of(step) == "wrong_answer"
    assert "call 1 of 12 in a batch" in message_of(step)
