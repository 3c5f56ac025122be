"""Groups of modules in real containers: verdicts, and nothing that one candidate leaves for the next."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from runner.base.config import Config
from runner.base.gpu_types import GpuType, Registry
from runner.evaluation.evaluate import Evaluator
from sandbox.host.engine import DockerEngine
from tests.unit import samples

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))

SIZE = 16

def get_inputs():
    return [torch.randn(8, SIZE)]

def get_init_inputs():
    return [SIZE]
"""
GOOD = REFERENCE.replace("class Model(", "class ModelNew(")
_WRONG = GOOD.replace("torch.relu(", "torch.tanh(")


def _run(evaluator: Evaluator, codes: list[str], reference: str = REFERENCE, **settings: Any) -> list[dict[str, Any]]:  # noqa: ANN401 any setting
    candidates = ({"id": number, "code": code} for number, code in enumerate(codes))
    group = samples.group(*candidates, reference=reference, settings={"timed_calls": 5, "timeout_s": 200, **settings})
    rows = evaluator.run(group, samples.SLOT, cancel=threading.Event()).items
    assert [row["id"] for row in rows] == list(range(len(codes)))
    return [dict(row) for row in rows]


def test_a_group_has_one_result_for_each_candidate(shared_evaluator: Evaluator) -> None:
    """Right, wrong, without a class, with a syntax error, killed: each has its own verdict, whatever the order."""
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    candidates = {
        "accepted": GOOD,
        "wrong_answer": _WRONG,
        "runtime_error": "x = 1",
        "compile_error": "class ModelNew(:",
    }
    rows = _run(shared_evaluator, [*candidates.values(), dies, GOOD])
    assert [row["verdict"] for row in rows] == [*candidates, "runtime_error", "accepted"], rows
    assert (rows[0]["speedup"] is None, rows[0]["weights"]) == (False, "state_dict")


def test_workers_are_forks_of_a_process_that_has_imported_torch(shared_evaluator: Evaluator) -> None:
    """All of them: killing a candidate's processes must not end the template, or each worker imports torch again."""
    # A fork of the template has objects that no collection looks at; a fresh interpreter has none.
    forked = f"import gc\nif not gc.get_freeze_count():\n    raise RuntimeError('not a fork')\n{GOOD}"
    rows = _run(shared_evaluator, [forked] * 3, timed_calls=0)
    assert [row["verdict"] for row in rows] == ["accepted"] * 3, rows


class _Emulated:
    """The registry, whose types have an emulated device."""

    def get(self, name: str) -> GpuType:
        return replace(Registry.load().get(name), emulate_cuda=True, memory_gib=2.0)


def test_a_group_on_an_emulated_device(docker_engine: DockerEngine, settings: Config) -> None:
    """Reference and candidates are there, and are timed there; what it is worth is said."""
    registry: Any = _Emulated()
    there = GOOD.replace("return torch.relu", "assert x.is_cuda\n        return torch.relu")
    evaluator = Evaluator(docker_engine, registry, settings.model_copy(update={"warm_containers": 0}))
    try:
        right, wrong = _run(evaluator, [there, GOOD.replace("torch.relu(", "torch.tanh(")])
    finally:
        evaluator.close()
    assert (right["verdict"], wrong["verdict"]) == ("accepted", "wrong_answer"), (right, wrong)
    there_alone = {"device": "CUDA, emulated on the CPU", "speedup_device": None, "kernel_use": None}
    assert there_alone.items() <= right.items()
    assert right["candidate_ns"] > 0
    assert right["timing"] != "audited"
