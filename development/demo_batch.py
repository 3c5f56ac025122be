"""The demo's batch: candidates for a PyTorch module, from a trainer's client to rewards."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from runner.base.model import Verdict
from runner.cli import render
from runner.cli.safe import one_line
from runner.extras.trainers.client import Client, Item

_REWARD: Final = "kernelbook@1"
_REFERENCE: Final = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)), dim=-1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
_RIGHT: Final = _REFERENCE.replace("class Model(", "class ModelNew(")
#: What a candidate does, its code, and the verdict that it gets.
CANDIDATES: Final = (
    ("what the reference does", _RIGHT, Verdict.ACCEPTED),
    (
        "leaves the softmax out",
        _RIGHT.replace("torch.softmax(torch.relu(self.linear(x)), dim=-1)", "self.linear(x)"),
        None,
    ),
    ("is off by a thousandth", _RIGHT.replace("self.linear(x)", "self.linear(x).detach() * 1.001"), None),
    ("is no Python", "class ModelNew(nn.Module:", None),
)


def evaluate(url: str) -> tuple[Table, list[str]]:
    """Evaluate the batch; a table of verdicts and rewards, and what did not go as it should.

    Raises:
        DatabaseUnavailableError: the database went away.
    """
    items = [Item(reference=_REFERENCE, candidate=code) for _, code, _ in CANDIDATES]
    with Client(url, gpu_type="CPU", user_id="demo-trainer", settings={"timed_calls": 10}) as client:
        results = client.evaluate(items)
    table = Table("what it does", "verdict", "speed-up", f"reward {_REWARD}", box=None, padding=(0, 2))
    surprises = []
    for (story, _, expected), result in zip(CANDIDATES, results, strict=True):
        speedup, reward = result.speedup, result.reward(_REWARD)
        table.add_row(
            Text(one_line(story)),
            render.verdict_text(None if result.verdict is None else Verdict(result.verdict)),
            "" if not speedup else f"{speedup:.2f}",
            "" if reward is None else f"{reward:.2f}",
        )
        right = (
            result.verdict == expected if expected is not None else result.verdict in ("wrong_answer", "compile_error")
        )
        if not right:
            surprises.append(f"the candidate that {story}: {result.verdict}: {result.message}")
    return table, surprises
