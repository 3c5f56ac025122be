"""Candidates for PyTorch modules from the client to rewards: queue, daemon, container, judge and worker as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from runner.extras.trainers.client import Client, Item
from tests.plugins.live import LiveRunner, live_runner

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
"""
RIGHT = REFERENCE.replace("class Model(", "class ModelNew(")
CANDIDATES = {
    "right": (REFERENCE, RIGHT),
    "wrong": (REFERENCE, RIGHT.replace("torch.relu(", "torch.tanh(")),
    "no Python": (REFERENCE, "class ModelNew(:"),
    "raises": (REFERENCE, RIGHT.replace("return torch.relu", "raise ValueError('no'); return torch.relu")),
    "bad reference": ("class Model(:", RIGHT),
}


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon of one slot."""
    with live_runner(create_database(migrated_template), cpu_slots=1, warm_containers=1) as runner:
        yield runner


def test_from_candidates_to_rewards(live: LiveRunner) -> None:
    """Each has its own verdict; only what is right has a reward, and a bad reference is nobody's zero."""
    items = [Item(reference=reference, candidate=candidate) for reference, candidate in CANDIDATES.values()]
    with Client(live.database_url, gpu_type="CPU", settings={"timed_calls": 5, "timeout_s": 200}) as client:
        results = dict(zip(CANDIDATES, client.evaluate(items), strict=True))
        again = client.evaluate(items)
    assert {name: result.verdict for name, result in results.items()} == {
        "right": "accepted",
        "wrong": "wrong_answer",
        "no Python": "compile_error",
        "raises": "runtime_error",
        "bad reference": "invalid",
    }, live.log
    rewards = {name: result.reward("kernelbook@1") for name, result in results.items()}
    speedup = rewards.pop("right")
    assert speedup is not None
    assert speedup > 0
    assert rewards == {"wrong": 0.0, "no Python": 0.0, "raises": 0.0, "bad reference": None}
    assert "no" in str(results["raises"].facts["message"])
    assert [result.facts for result in again] == [result.facts for result in results.values()]
