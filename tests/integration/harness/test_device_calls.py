"""Calls on a device that the judge's own work marks, on a device whose time is virtual (`tests.support.emulated_gpu`).

The judge and the worker run as they are. So the figures are exact: what is left of a span without the hand-over is what
the kernel took, whatever the worker claims and however large inputs and outputs are.
"""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.protocol import StepResult
from tasks.harness.local import lines_of
from tests.support import emulated_gpu

from .conftest import Benchmark

HONEST = """
from tests.support.emulated_gpu import spend_ns


def custom_kernel(data):
    x, kernel_ns = data
    spend_ns(kernel_ns)
    return x + 1.0
"""
FORGED = (
    """
import torch

honest = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: honest(self, end) / 2
"""
    + HONEST
)
#: Writes its output after the worker has said that the call has ended.
LATE = """
from tests.support import emulated_gpu


def custom_kernel(data):
    x, kernel_ns = data
    output = x * 0.0
    emulated_gpu.STREAM.submit(lambda: emulated_gpu.STREAM.submit(lambda: output.copy_(x + 1.0)))
    return output
"""
#: Computes when it is called, without waiting for its inputs.
EARLY = """
from tests.support import emulated_gpu


def custom_kernel(data, known={}):
    x, kernel_ns = data
    return known.setdefault("answer", x + 1.0)
"""
RAISES = """
def custom_kernel(data, calls=[]):
    calls.append(1)
    assert len(calls) < 4
    return data[0] + 1.0
"""


def accepted(step: StepResult) -> dict[str, Any]:
    """The details of the one case."""
    assert step.judged is not None
    assert step.judged.verdict == "accepted", (step.judged.message, step.stderr)
    assert step.judged.details["gate"] == "open"
    return dict(step.judged.details["cases"][0])


@pytest.mark.parametrize("kib", [4, 1024, 32768])
def test_the_hand_over_is_the_same_for_every_size(benchmark: Benchmark, kib: int) -> None:
    """Inputs and outputs of 4 KiB to 32 MiB: the judge's estimate is the kernel's time."""
    step = benchmark(HONEST, size=kib << 8)
    case = accepted(step)
    assert case["timing"] == "audited"
    assert abs(case["excess_ns"]) < 10
    assert case["contradicted"] is False
    assert case["not_exclusive"] == 0
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000, abs=10)


def test_a_kernel_of_milliseconds_is_not_contradicted(benchmark: Benchmark) -> None:
    """Far longer than the judge spins on the host."""
    case = accepted(benchmark(HONEST, kernel_ns=7_000_000))
    assert (case["timing"], case["contradicted"]) == ("audited", False)


def test_a_claim_that_leaves_time_out_gains_nothing(benchmark: Benchmark) -> None:
    """Half of each time: the judge's measure ranks, and is exact."""
    step = benchmark(FORGED)
    case = accepted(step)
    assert (case["timing"], case["contradicted"]) == ("measured", True)
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000, abs=10)


def test_a_quarter_of_a_long_time_is_rejected_where_the_type_says_so(benchmark: Benchmark) -> None:
    """The message names the claim and what passed."""
    judged = benchmark(FORGED.replace("/ 2", "/ 4"), kernel_ns=4_000_000, rejects=True).judged
    assert judged is not None
    assert judged.verdict == "rejected"
    assert judged.message == (
        "benchmark 1 of 1: the submission claims 1.000 ms per call, but at least 3.999 ms passed on the judge's clock"
    )


@pytest.mark.parametrize("submission", [LATE, EARLY], ids=["written late", "computed early"])
def test_an_output_counts_as_it_is_between_the_release_and_the_end(benchmark: Benchmark, submission: str) -> None:
    """What was there before the inputs is wrong, and so is what comes after the end."""
    judged = benchmark(submission).judged
    assert judged is not None
    assert (judged.verdict, judged.message) == ("wrong_answer", "benchmark 1 of 1: the sums are wrong")


def test_nothing_is_subtracted_from_calls_that_need_the_host(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's processor is at work during the call. Two changes of process stay in the time."""
    monkeypatch.setenv("EMULATED_GPU_BUSY", "1")
    step = benchmark(HONEST)
    case = accepted(step)
    assert case["timing"] == "measured"
    assert case["not_exclusive"] == case["not_believed"] > 0
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000 + 2 * emulated_gpu.SWITCH_NS, abs=10)
    assert "worked on the host" in lines_of(step)["benchmark.0.runner.host"]


def test_a_device_that_processes_share_marks_no_calls(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out before the submission is loaded. Its calls go by message, and the report says why."""
    monkeypatch.setenv("EMULATED_GPU_SHARED", "1")
    judged = benchmark(HONEST).judged
    assert judged is not None
    assert judged.verdict == "accepted", judged.message
    assert str(judged.details["gate"]).startswith("kernels of two processes run at once on this device")
    assert "device" not in judged.details["calibration"]


def test_what_an_earlier_worker_has_found_is_not_tried_again(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was, the gate is as open as the judge's own measurements find it."""
    monkeypatch.setenv("EMULATED_GPU_DEAF", "1")
    judged = benchmark(HONEST).judged
    assert judged is not None
    assert judged.details["gate"] == "the device did not see a number in the host's memory"
    assert accepted(benchmark(HONEST, streams_wait=True))["timing"] == "audited"


def test_a_kernel_that_raises_is_a_runtime_error(benchmark: Benchmark) -> None:
    """Streams that wait are released, and the next case can be made."""
    judged = benchmark(RAISES).judged
    assert judged is not None
    assert judged.verdict == "runtime_error"
    assert "AssertionError" in str(judged.message)
