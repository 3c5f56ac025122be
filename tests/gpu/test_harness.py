"""The built-in harness on a real accelerator: judge and worker as two processes, without a container.

`make test` does not collect this folder: these tests need a device, torch and pytest, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from sandbox.protocol import StepResult
from tasks.harness.local import lines_of
from tests.gpu.bench import ROOT, Machine, judge, task_of

RANKS = torch.cuda.device_count()
EXPERTS = f"num_experts: {8 * RANKS}; experts_per_token: 4"
CASES = {
    "vectoradd": ("size: 127; seed: 1", "size: 1024; seed: 2"),
    "identity": ("size: 1000; seed: 1",),
    "amd_gemm_rs": (f"world_size: {RANKS}; m: {64 * RANKS}; n: 512; k: {256 * RANKS}; has_bias: True; seed: 1",),
    "amd_all2all": (f"world_size: {RANKS}; {EXPERTS}; hidden_dim: 512; max_num_tokens: 64; seed: 1",),
}

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")


def evaluate(task: str, submission: str, *modes: str) -> Sequence[StepResult]:
    """Run modes of a task with a submission of its folder."""
    code = (ROOT / "tasks" / "problems" / task / submission).read_text(encoding="utf-8")
    ranks = RANKS if "world_size" in CASES[task][0] else None
    cases = dict.fromkeys(modes, CASES[task])
    return judge(task_of(task), code, cases, Machine.here(), ranks=ranks, limit_s=120.0)


def verdicts(steps: Sequence[StepResult]) -> list[tuple[str, str]]:
    """Name and verdict of each step."""
    return [(step.name, step.judged.verdict if step.judged is not None else "none") for step in steps]


@pytest.mark.parametrize(
    ("task", "submission"), [("vectoradd", "solutions/correct/torch_add.py"), ("identity", "solutions/correct/copy.py")]
)
def test_right_submissions_are_accepted(task: str, submission: str) -> None:
    """Test, benchmark and leaderboard pass on the device; the judge's clock bounds none of so short times."""
    steps = evaluate(task, submission, "test", "benchmark", "leaderboard")
    assert verdicts(steps) == [(mode, "accepted") for mode in ("test", "benchmark", "leaderboard")], steps
    for step in steps[1:]:
        assert step.judged is not None
        assert step.judged.assurance["timing"] in ("claimed", "measured")
        assert float(lines_of(step)["benchmark.0.mean"]) > 0


@pytest.mark.parametrize(
    ("task", "submission"), [("vectoradd", "solutions/wrong/last_element.py"), ("identity", "solutions/wrong/zeros.py")]
)
def test_wrong_submissions_are_not(task: str, submission: str) -> None:
    """The check sees the device's result."""
    assert verdicts(evaluate(task, submission, "test")) == [("test", "wrong_answer")]


@pytest.mark.parametrize(
    ("task", "submission", "verdict"),
    [
        ("amd_gemm_rs", "templates/torch_collective.py", "accepted"),
        ("amd_gemm_rs", "solutions/correct/overlapped.py", "accepted"),
        ("amd_gemm_rs", "solutions/wrong/fp8_parts.py", "wrong_answer"),
        ("amd_all2all", "templates/torch_collectives.py", "accepted"),
        ("amd_all2all", "solutions/wrong/next_weight.py", "wrong_answer"),
    ],
)
def test_a_rank_on_each_device(task: str, submission: str, verdict: str) -> None:
    """As many ranks as there are devices, one included, meet over NCCL or RCCL, and so do the rank checkers."""
    steps = evaluate(task, submission, "test", "benchmark")
    modes = ("test", "benchmark") if verdict == "accepted" else ("test",)
    assert verdicts(steps) == [(mode, verdict) for mode in modes], steps


def test_the_device_is_named_in_the_facts() -> None:
    """The first step says what it ran on."""
    (step,) = evaluate("vectoradd", "solutions/correct/torch_add.py", "test")
    assert step.judged is not None
    system: dict[str, Any] = dict(step.judged.details["system"])
    assert system["gpu"] == torch.cuda.get_device_name(0)
    assert system["runtime"] in ("CUDA", "ROCm")
