"""Ways to cheat that need a device: streams, graphs and caches. Those that do not are in tests/acceptance/attacks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sandbox.protocol import StepResult
from tasks.harness import local
from tasks.harness.request import JudgeRequest, ModeRequest

TASK = Path(__file__).resolve().parents[2] / "tasks"
CASE = "size: 1024; seed: 2"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

#: Holds a stream for some tens of milliseconds before the answer is written.
ANOTHER_STREAM = """
import torch

side = torch.cuda.Stream()


def custom_kernel(data):
    a, b, *rest = data
    output = torch.zeros_like(a)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        torch.add(a, b, out=output)
    output.record_stream(side)
    return output
"""
#: Captures a graph over its first inputs and replays that, whatever it is given.
BAKED_GRAPH = """
import torch

graph, kept = torch.cuda.CUDAGraph(), []


def custom_kernel(data):
    a, b, *rest = data
    if not kept:
        a, b = a.clone(), b.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            kept.append(a + b)
    graph.replay()
    return kept[0]
"""
#: Sets lines of the cache aside for what it touches twice, and asks for the answer to stay in them.
PERSISTING_CACHE = """
import ctypes
import torch

PERSISTING_L2_CACHE_SIZE = 6
known = {}


def custom_kernel(data):
    a, b, *rest = data
    if not known:
        ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0]).cudaDeviceSetLimit(
            PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(1 << 20)
        )
    known.setdefault("answer", a + b)
    return known["answer"]
"""


def evaluate(submission: str, mode: str) -> StepResult:
    """One mode of the vector addition."""
    request = JudgeRequest(
        modes=(ModeRequest(name=mode, cases=(CASE,), timeout_s=120.0),),
        files={
            Path(name).name: (TASK / name).read_text(encoding="utf-8")
            for name in ("vectoradd/reference.py", "vectoradd/task.py", "utils.py")
        },
        worker_files=("task.py", "utils.py"),
        submission_name="submission.py",
        submission=submission,
        device="cuda",
    )
    return local.evaluate(request).steps[0]


@pytest.mark.parametrize(
    "submission",
    [pytest.param(BAKED_GRAPH, id="baked graph"), pytest.param(PERSISTING_CACHE, id="persisting cache")],
)
def test_answers_that_were_kept_are_wrong(submission: str) -> None:
    """Every timed call has values of its own, wherever the old answer is kept."""
    judged = evaluate(submission, "benchmark").judged
    assert judged is not None
    assert judged.verdict in ("wrong_answer", "runtime_error"), judged


def test_work_on_another_stream_is_waited_for() -> None:
    """The reported time has all the device did for the call, on whichever stream."""
    step = evaluate(ANOTHER_STREAM, "benchmark")
    assert step.judged is not None
    if step.judged.verdict == "accepted":
        # Fifty million cycles, of at most three in a nanosecond.
        assert float(step.result["benchmark.0.mean"]) > 50_000_000 / 3
    else:
        assert step.judged.verdict in ("wrong_answer", "rejected"), step.judged
