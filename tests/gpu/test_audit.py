"""How far the judge's clock bounds times on a device: events beside the bound by flags beside the time from end to end.

Kernels of about 3, 20 and 200 µs in three kinds (torch, Triton, CUDA C++). Against them stand CUDA events around a
graph, and triton.testing.do_bench. Then inputs of every size, forged clocks, and workers that could compute while the
judge's own work is on the device. The figures are printed at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from sandbox.protocol import StepResult
from tasks.harness import local
from tasks.harness.local import lines_of
from tasks.harness.worker.submission import import_submission
from tests.gpu.bench import Machine, Task, judge, tasks, verdict_of
from tests.gpu.recording import keep, start
from tests.support.judge_requests import request_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

CUDA = torch.version.cuda is not None
ABOUT_US = (3, 20, 200)
_CALLS_IN_A_GRAPH = 20
REFERENCE = """
import torch


def generate_input(size, rounds, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).cuda(), rounds


def ref_kernel(data):
    x, rounds = data
    return x + 1.0


def check_implementation(data, output):
    good = output.shape == data[0].shape and bool(torch.allclose(output, ref_kernel(data)))
    return good, "" if good else "the sums are wrong"
"""
#: An addition, after as many others as there are rounds, on the same stream.
TORCH = """
import torch


def custom_kernel(data):
    x, rounds = data
    for _ in range(rounds - 1):
        y = x + 2.0
    return x + 1.0
"""
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def busy(x, out, rounds, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size)
    burnt = value
    for _ in range(rounds * 200):
        burnt = burnt * 0.999 + 0.001
    # Never so: nothing may be left out, and nothing is added.
    tl.store(out + at, value + 1.0 + tl.where(burnt > 1e30, 1.0, 0.0), mask=at < size)


def custom_kernel(data):
    x, rounds = data
    out = torch.empty_like(x)
    busy[((x.numel() + 255) // 256,)](x, out, rounds, x.numel(), BLOCK=256)
    return out
"""
RAW = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void busy(const float* x, float* out, long rounds, long size) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    float value = at < size ? x[at] : 0.f, burnt = value;
    for (long i = 0; i < rounds * 200; ++i) burnt = burnt * 0.999f + 0.001f;
    if (at < size) out[at] = value + 1.f + (burnt > 1e30f ? 1.f : 0.f);
}
torch::Tensor run(torch::Tensor x, long rounds) {
    auto out = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    busy<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), rounds, x.numel());
    return out;
}
"""
module = load_inline("busy", cpp_sources="torch::Tensor run(torch::Tensor x, long rounds);", cuda_sources=SOURCE,
                     functions=["run"])


def custom_kernel(data):
    x, rounds = data
    return module.run(x, rounds)
'''
KINDS = {"torch": TORCH, "triton": TRITON, "cuda": RAW}
#: The rounds are the kernel's cycles.
SLEEPS = """
import torch


def custom_kernel(data):
    x, rounds = data
    torch.cuda._sleep(rounds)
    return x + 1.0
"""
#: Says that less time has passed between two events.
FORGES = (
    SLEEPS
    + """
honest = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: max(honest(self, other) - HIDDEN_US / 1e3, 0.002)
"""
)
#: A thread of the host that never sleeps, as one would that reads inputs while the judge is still at work.
BUSY_THREAD = (
    SLEEPS
    + """
import threading


def spin():
    while True:
        pass


threading.Thread(target=spin, daemon=True).start()
"""
)
#: A kernel on another stream that is still running when the judge fills in the inputs.
OCCUPIED = """
import torch

side = torch.cuda.Stream()


def custom_kernel(data):
    x, rounds = data
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
    torch.cuda._sleep(rounds)
    return x + 1.0
"""
SYNCHRONISES = """
import torch


def custom_kernel(data):
    x, rounds = data
    total = float(x.sum())
    torch.cuda._sleep(rounds)
    return x + (1.0 if total == total else 0.0)
"""
#: Looks for its inputs where they will be, on a stream that does not stand still, as soon as it is called.
LOOKS_EARLY = """
import torch

side = torch.cuda.Stream()


def custom_kernel(data):
    x, rounds = data
    with torch.cuda.stream(side):
        out = x + 1.0
    torch.cuda.current_stream().wait_stream(side)
    return out
"""


def timed(submission: str, *, rounds: int, size: int = 4096, rejects: bool = False) -> StepResult:
    """The benchmark of a submission, of as many calls as it takes."""
    case = f"size: {size}; rounds: {rounds}; seed: 3"
    request = request_of(
        REFERENCE,
        submission,
        case,
        "benchmark",
        timeout_s=120.0,
        device="cuda",
        build_timeout_s=300.0,
        memory_bytes=4 << 30,
        rejects_forged_times=rejects,
    )
    return keep(f"{rounds} rounds, {size} numbers", local.evaluate(request, start=start).steps)[0]


def details(step: StepResult) -> dict[str, Any]:
    """What the report says of the one case of an accepted submission; its calls go by flags."""
    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged.message
    if CUDA:
        assert step.judged.details["gate"] == "open", step.judged.details["gate"]
    return dict(step.judged.details["cases"][0])


def lacking(kind: str) -> str | None:
    """Why a kind of kernel cannot be made here."""
    if kind == "triton" and find_spec("triton") is None:
        return "needs triton"
    return "needs nvcc on PATH" if kind == "cuda" and shutil.which("nvcc") is None else None


def in_a_graph(function: Callable[[], object]) -> float:
    """Nanoseconds of a function's device work: from events around replays of a graph that holds many calls.

    A graph of one call would take as long as its launch, if that is longer.
    """
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS_IN_A_GRAPH):
            function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
    spans: list[float] = []
    for _ in range(5):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        spans.append(begin.elapsed_time(end) * 1e6 / _CALLS_IN_A_GRAPH)
    return median(spans)


def loaded(submission: str, folder: Path) -> Callable[[Any], object]:
    """A submission's function, in this process."""
    (folder / "submission.py").write_text(submission)
    found: Callable[[Any], object] = getattr(import_submission(folder, "submission.py"), "custom_kernel")  # noqa: B009 a module's
    return found


@cache
def cycles_per_us() -> float:
    """The clock of `torch.cuda._sleep` on a device that is at work."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch lacks it
    for _ in range(50):
        begin.record()
        torch.cuda._sleep(10_000_000)  # type: ignore[no-untyped-call]  # torch lacks it
        end.record()
        end.synchronize()
    return 10_000_000 / (float(begin.elapsed_time(end)) * 1e3)


def cycles(microseconds: float) -> int:
    """Rounds of a kernel that sleeps for so long."""
    return int(microseconds * cycles_per_us())


def rounds_for(kernel: Callable[[Any], object], about_us: float) -> int:
    """How often a kernel must go round to take about so long."""
    x = torch.randn(4096, device="cuda")
    many = 500
    long_ns = in_a_graph(lambda: kernel((x, many)))
    short_ns = in_a_graph(lambda: kernel((x, 1)))
    return max(1, round((about_us * 1e3 - short_ns) / (long_ns - short_ns) * (many - 1)))


@pytest.mark.parametrize("about_us", ABOUT_US)
@pytest.mark.parametrize("kind", list(KINDS))
def test_honest_kernels_are_bounded_and_never_contradicted(
    kind: str, about_us: int, tmp_path: Path, audited: list[str]
) -> None:
    """The claim is near what a graph says, the bound below it; where the kernel is long enough it is audited."""
    reason = lacking(kind)
    if reason is not None:
        pytest.skip(reason)
    kernel = loaded(KINDS[kind], tmp_path)
    rounds = rounds_for(kernel, about_us)
    step = timed(KINDS[kind], rounds=rounds)
    case = details(step)
    data = (torch.randn(4096, device="cuda"), rounds)
    graph_ns = in_a_graph(lambda: kernel(data))
    bench_ns = None
    if find_spec("triton") is not None:
        bench_ns = import_module("triton.testing").do_bench(lambda: kernel(data)) * 1e6
    audited.append(
        f"{kind:7} {about_us:4} µs events "
        f"{case['claimed_median_ns'] / 1e3:9.2f}  noise {(case['noise_ns'] or 0) / 1e3:9.2f}  hand-over "
        f"{(case['hand_over_ns'] or 0) / 1e3:9.2f}  end to end {case['outside_median_ns'] / 1e3:9.2f}  graph "
        f"{graph_ns / 1e3:9.2f}  do_bench {(bench_ns or 0) / 1e3:9.2f} µs  {case['timing']}"
    )
    assert case["contradicted"] is False, case
    assert case["not_believed"] <= case["calls"] / 10, case
    assert case["outside_median_ns"] > case["claimed_median_ns"]
    # Cold caches and the first look at memory make a call longer than a replay, a gap in its launches never shorter.
    assert case["claimed_median_ns"] > 0.8 * graph_ns
    if CUDA and about_us == 200:
        assert case["timing"] == "audited", case


@pytest.mark.skipif(not CUDA, reason="calls are marked on CUDA alone")
@pytest.mark.parametrize("kib", [4, 64, 1024, 4096, 32768, 131072])
def test_the_hand_over_costs_the_same_for_every_size(kib: int, audited: list[str]) -> None:
    """Inputs and outputs of 4 KiB to 128 MiB: what the span holds beside the claim is known to some microseconds."""
    step = timed(TORCH, rounds=1, size=kib << 8)
    case = details(step)
    audited.append(
        f"{kib:6} KiB in and out: claim {case['claimed_median_ns'] / 1e3:8.2f}  span "
        f"{case['outside_median_ns'] / 1e3:8.2f}  beside the claim and the hand-over "
        f"{case['excess_ns'] / 1e3:6.2f}  noise {case['noise_ns'] / 1e3:6.2f} µs  "
        f"{step.duration_ns / 1e9:.1f} s"
    )
    assert case["contradicted"] is False, case
    assert case["noise_ns"] < 10_000, case


def test_a_kernel_of_milliseconds_is_not_contradicted() -> None:
    """Longer than the judge spins on a processor."""
    step = timed(SLEEPS, rounds=cycles(7000))
    case = details(step)
    assert case["contradicted"] is False
    if CUDA:
        assert case["timing"] == "audited"


@pytest.mark.parametrize("rejects", [False, True], ids=["counted", "rejected"])
@pytest.mark.parametrize(("real_us", "hidden_us"), [(40, 20), (100, 20), (100, 80), (300, 130), (1000, 700)])
def test_a_forged_clock_gains_nothing(real_us: float, hidden_us: float, rejects: bool, audited: list[str]) -> None:
    """Claims that leave out a part of the time: the judge's measure counts, or the submission is rejected."""
    step = timed(FORGES.replace("HIDDEN_US", str(hidden_us)), rounds=cycles(real_us), rejects=rejects)
    assert step.judged is not None
    if step.judged.verdict == "rejected":
        assert rejects
        return
    case = details(step)
    mean_us = float(lines_of(step)["benchmark.0.mean"]) / 1e3
    audited.append(f"forged {hidden_us:4} of {real_us:4} µs: {case['timing']}, ranks with {mean_us:.2f} µs")
    if CUDA:
        assert mean_us > 0.97 * real_us
        assert case["timing"] == "measured"
        assert case["contradicted"] is True


@pytest.mark.skipif(not CUDA, reason="calls are marked on CUDA alone")
@pytest.mark.parametrize("submission", [SYNCHRONISES, BUSY_THREAD, OCCUPIED], ids=["synchronises", "thread", "device"])
def test_calls_beside_which_the_worker_could_compute_count_as_their_whole_span(
    submission: str, audited: list[str]
) -> None:
    """Work of the worker's processor, or work that it keeps on the device, is seen. Nothing is subtracted then."""
    step = timed(submission, rounds=cycles(100))
    case = details(step)
    audited.append(
        f"not exclusive: claim {case['claimed_median_ns'] / 1e3:.1f}  ranks with "
        f"{float(lines_of(step)['benchmark.0.mean']) / 1e3:.1f} µs, {case['not_believed']} of "
        f"{lines_of(step)['benchmark.0.runs']} calls"
    )
    assert case["timing"] == "measured"
    assert case["not_believed"] > int(lines_of(step)["benchmark.0.runs"]) / 2
    assert float(lines_of(step)["benchmark.0.mean"]) > 250_000


@pytest.mark.skipif(not CUDA, reason="calls are marked on CUDA alone")
def test_nothing_can_be_computed_before_there_are_inputs() -> None:
    """A worker that does not wait for the start flag works on memory without inputs."""
    step = timed(LOOKS_EARLY, rounds=1)
    assert step.judged is not None
    assert step.judged.verdict == "wrong_answer", step.judged


@pytest.mark.parametrize("task", [task for task in tasks() if task.small_ranks is None], ids=lambda task: task.name)
def test_right_solutions_are_never_contradicted(task: Task, machine: Machine) -> None:
    """The honest corpus of a device: no false alarm in any case of any right solution (run it twenty times)."""
    for path in task.right:
        steps = judge(task, path.read_text(), {"benchmark": task.small_benchmarks}, machine, keeps=True)
        assert verdict_of(steps).verdict == "accepted", (path.name, verdict_of(steps).message)
        for step in steps:
            assert step.judged is not None
            for case in step.judged.details["cases"]:
                assert not case.get("contradicted", False), (path.name, case)
