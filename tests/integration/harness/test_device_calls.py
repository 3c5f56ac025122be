"""Calls on a device that the judge's own work marks, on a device whose time is virtual (`tests.support.emulated_gpu`).

The judge and the worker run as they are. So the figures are exact: what is left of a span without the hand-over is what
the kernel took, whatever the worker claims and however large inputs and outputs are.
"""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.protocol import StepResult
from tasks.harness import local
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import lines_of
from tests.support import emulated_gpu
from tests.support.judge_requests import request_of

pytestmark = pytest.mark.judging

REFERENCE = """
import torch


def generate_input(size, kernel_ns, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).cuda(), kernel_ns


def ref_kernel(data):
    return data[0] + 1.0


def check_implementation(data, output):
    good = output.shape == data[0].shape and bool(torch.allclose(output, ref_kernel(data)))
    return good, "" if good else "the sums are wrong"
"""
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
    if not emulated_gpu.in_stream():
        return x + 1.0
    emulated_gpu.write_later(lambda output: output.copy_(x + 1.0))
    emulated_gpu.spend_ns(1_000)
    return x * 0.0
"""
#: Leaves out a flush that would be its own to make, and claims the time that this saves not to have passed.
SKIPS_FLUSH = (
    """
import torch
from tests.support import emulated_gpu

emulated_gpu.flush = lambda: None
honest = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: max(honest(self, end) - emulated_gpu.FLUSH_NS / 1e6, 0.0)
"""
    + HONEST
)
#: Computes when its output is read, which the worker does after the kernel has returned.
LAZY = """
from tests.support import emulated_gpu


def custom_kernel(data):
    x, kernel_ns = data

    def compute():
        emulated_gpu.spend_ns(kernel_ns)
        return x + 1.0

    return emulated_gpu.lazily(compute, like=x)
"""
#: Computes when it is called, without waiting for its inputs.
EARLY = """
from tests.support import emulated_gpu


def custom_kernel(data, known=[]):
    x, kernel_ns = data
    if emulated_gpu.in_stream():
        return known.pop()
    known.append(x + 1.0)
    return known[-1]
"""
#: Says in advance that every call has ended, and answers when its work is done: after the release, and after the end.
ANSWERS_LATE = (
    """
import torch
from tasks.harness.shared.call_flags import FINISHED_AT, RELEASED_AT
from tasks.harness.worker.stream_block import StreamBlock
from tests.support import emulated_gpu

enqueues = StreamBlock.enqueue
torch.cuda.Event.elapsed_time = lambda *_: 0.002


def enqueue(self, order, kernel, *, adapt):
    words = self._page.words()
    # When it was written, by which the judge's stream sets its clock; no real device has such a number.
    words[(FINISHED_AT + emulated_gpu._TIME_AT) // 8] = 0
    words[FINISHED_AT // 8] = 0x7FFFFFFF
    while words[RELEASED_AT // 8] & 0xFFFFFFFF != order.call:
        pass
    queued = enqueues(self, order, kernel, adapt=adapt)
    torch.cuda.synchronize()
    return queued


StreamBlock.enqueue = enqueue
"""
    + HONEST
)
RAISES = """
def custom_kernel(data, calls=[]):
    calls.append(1)
    assert len(calls) < 4
    return data[0] + 1.0
"""


def benchmark(
    submission: str,
    *,
    size: int = 1024,
    kernel_ns: int = 100_000,
    rejects: bool = False,
    timing: Timing | None = None,
    streams_wait: bool = False,
) -> StepResult:
    """Time one case."""
    case = f"size: {size}; kernel_ns: {kernel_ns}; seed: 3"
    request = request_of(
        REFERENCE,
        submission,
        case,
        "benchmark",
        timing=timing,
        device="cuda",
        rejects_forged_times=rejects,
        streams_wait=streams_wait,
    )
    (step,) = local.evaluate(request, start=emulated_gpu.start).steps
    return step


def accepted(step: StepResult) -> dict[str, Any]:
    """The details of the one case."""
    assert step.judged is not None
    assert step.judged.verdict == "accepted", (step.judged.message, step.stderr)
    assert step.judged.details["gate"] == "open"
    return dict(step.judged.details["cases"][0])


@pytest.mark.parametrize(("kib", "kernel_ns"), [(4, 100_000), (1024, 100_000), (32768, 100_000), (4, 7_000_000)])
def test_the_hand_over_is_the_same_for_every_size(kib: int, kernel_ns: int) -> None:
    """Inputs and outputs of 4 KiB to 32 MiB: the judge's estimate is the kernel's time.

    Also where that is far longer than the judge spins on the host.
    """
    step = benchmark(HONEST, size=kib << 8, kernel_ns=kernel_ns)
    case = accepted(step)
    assert case["timing"] == "audited"
    assert abs(case["excess_ns"]) < 10
    assert case["contradicted"] is False
    assert case["not_exclusive"] == 0
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(kernel_ns, abs=10)


@pytest.mark.parametrize(
    ("submission", "without"),
    [
        pytest.param(FORGED, "", id="half of each time"),
        pytest.param(SKIPS_FLUSH, "", id="without a flush that is none of its work"),
        # The span holds all that comes before the end number. So the judge needs no worker that records the event.
        pytest.param(LAZY, "description", id="without work that was put off"),
    ],
)
def test_a_claim_that_leaves_time_out_gains_nothing(
    submission: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's measure ranks, and is exact."""
    monkeypatch.setenv("EMULATED_GPU_WITHOUT", without)
    step = benchmark(submission)
    case = accepted(step)
    assert (case["timing"], case["contradicted"]) == ("measured", True)
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000, abs=10)


def test_a_quarter_of_a_long_time_is_rejected_where_the_type_says_so() -> None:
    """The message names the claim and what passed."""
    judged = benchmark(FORGED.replace("/ 2", "/ 4"), kernel_ns=4_000_000, rejects=True).judged
    assert judged is not None
    assert judged.verdict == "rejected"
    assert judged.message == (
        "benchmark 1 of 1: the submission claims 1.000 ms per call, but at least 3.999 ms passed on the judge's clock"
    )


@pytest.mark.parametrize("submission", [LATE, EARLY], ids=["written late", "computed early"])
def test_an_output_counts_as_it_is_between_the_release_and_the_end(submission: str) -> None:
    """What was there before the inputs is wrong, and so is what comes after the end."""
    judged = benchmark(submission).judged
    assert judged is not None
    assert (judged.verdict, judged.message) == ("wrong_answer", "benchmark 1 of 1: the sums are wrong")


#: A submission, the defences against it, and what it reports without them, in nanoseconds.
ATTACKS = [
    pytest.param(FORGED, "span", 50_000, id="claims a half"),
    pytest.param(SKIPS_FLUSH, "flush", 50_000, id="skips the flush"),
    pytest.param(LAZY, "description,span", 1_000, id="is lazy"),
    pytest.param(LATE, "copy", 1_000, id="writes late"),
]


@pytest.mark.parametrize(("submission", "defences", "gained_ns"), ATTACKS)
def test_without_its_defence_an_attack_is_not_noticed(
    submission: str, defences: str, gained_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ranks as audited, with less than the time of its work: the tests of these submissions can fail."""
    monkeypatch.setenv("EMULATED_GPU_WITHOUT", defences)
    step = benchmark(submission)
    assert accepted(step)["timing"] in ("audited", "measured")
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(gained_ns, abs=10)


def test_work_that_is_put_off_until_the_output_is_read_is_in_the_claim() -> None:
    """The event after it is recorded once more, so an honest submission of this kind is audited."""
    step = benchmark(LAZY)
    case = accepted(step)
    assert (case["timing"], case["contradicted"]) == ("audited", False)
    assert case["claimed_median_ns"] == pytest.approx(100_000, abs=10)
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000, abs=10)


def test_nothing_is_subtracted_from_calls_that_need_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's processor is at work during the call. Two changes of process stay in the time."""
    monkeypatch.setenv("EMULATED_GPU_BUSY", "1")
    step = benchmark(HONEST)
    case = accepted(step)
    assert case["timing"] == "measured"
    assert case["not_exclusive"] == case["not_believed"] > 0
    assert float(lines_of(step)["benchmark.0.mean"]) == pytest.approx(100_000 + 2 * emulated_gpu.SWITCH_NS, abs=10)
    assert "worked on the host" in lines_of(step)["benchmark.0.runner.host"]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("SHARED", "kernels of two processes run at once on this device"),
        # As in confidential computing, or a virtual machine's part of a device.
        ("PRIVATE", "cuIpcGetMemHandle failed with CUresult 801"),
    ],
    ids=["processes share it", "its memory cannot be shared"],
)
def test_a_device_that_no_stream_can_be_marked_on_marks_no_calls(
    monkeypatch: pytest.MonkeyPatch, what: str, why: str
) -> None:
    """Found out before the submission is loaded. Its calls go by message, and the report says why."""
    monkeypatch.setenv(f"EMULATED_GPU_{what}", "1")
    judged = benchmark(HONEST).judged
    assert judged is not None
    assert judged.verdict == "accepted", judged.message
    assert why in str(judged.details["gate"])
    assert "device" not in judged.details["calibration"]


def test_what_an_earlier_worker_has_found_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was, the gate is as open as the judge's own measurements find it."""
    monkeypatch.setenv("EMULATED_GPU_DEAF", "1")
    judged = benchmark(HONEST).judged
    assert judged is not None
    assert judged.details["gate"] == "the device did not see a number in the host's memory"
    assert accepted(benchmark(HONEST, streams_wait=True))["timing"] == "audited"


@pytest.mark.parametrize("rejects", [False, True])
def test_an_answer_after_the_end_is_in_the_span(monkeypatch: pytest.MonkeyPatch, *, rejects: bool) -> None:
    """By the host's clock, until the judge has all that it uses: no less ranks than the work takes.

    The end number ends nothing where the output is not yet described. Such a claim is rejected where claims are.
    """
    monkeypatch.setenv("EMULATED_GPU_IN_TIME", "1")
    step = benchmark(ANSWERS_LATE, kernel_ns=7_000_000, rejects=rejects, timing=Timing(max_runs=8))
    assert step.judged is not None
    if rejects:
        assert step.judged.verdict == "rejected"
        assert "on the judge's clock" in str(step.judged.message)
        return
    case = accepted(step)
    assert case["timing"] == "measured"
    assert float(lines_of(step)["benchmark.0.mean"]) >= 7_000_000


def test_a_kernel_that_raises_is_a_runtime_error() -> None:
    """Streams that wait are released, and the next case can be made."""
    judged = benchmark(RAISES).judged
    assert judged is not None
    assert judged.verdict == "runtime_error"
    assert "AssertionError" in str(judged.message)
