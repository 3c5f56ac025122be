"""The demo's batch: candidates for a PyTorch module, from a file through `kernel-runner batch run` to rewards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from runner.base.errors import InfrastructureError
from runner.base.model import Verdict
from runner.cli import render
from runner.cli.safe import one_line

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


def evaluate(config: Path, directory: Path) -> tuple[Table, list[str]]:
    """Evaluate the batch; a table of verdicts and rewards, and what did not go as it should.

    Args:
        config: the configuration file of the demo's host.
        directory: where the files of candidates and of results lie.

    Raises:
        InfrastructureError: the command found no result for a candidate.
    """
    candidates, results = directory / "candidates.jsonl", directory / "results.jsonl"
    results.unlink(missing_ok=True)
    items = [{"key": story, "reference": _REFERENCE, "candidate": code} for story, code, _ in CANDIDATES]
    candidates.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    command = [sys.executable, "-m", "runner.cli", "--config", str(config), "batch", "run", str(candidates)]
    options = ["--gpu", "CPU", "--out", str(results), "--user", "demo-trainer", "--timed-calls", "10"]
    if subprocess.run([*command, *options, "--reward", _REWARD], check=False, stdout=subprocess.DEVNULL).returncode:
        raise InfrastructureError(f"`batch run` ended without results for all candidates; they are in {results}")
    rows = {row["key"]: row for row in map(json.loads, results.read_text(encoding="utf-8").splitlines())}
    table = Table("what it does", "verdict", "speed-up", f"reward {_REWARD}", box=None, padding=(0, 2))
    surprises = []
    for story, _, expected in CANDIDATES:
        row = rows[story]
        verdict, speedup, reward = Verdict(row["verdict"]), row["speedup"], row["reward"]
        table.add_row(
            Text(one_line(story)),
            render.verdict_text(verdict),
            "" if not speedup else f"{speedup:.2f}",
            "" if reward is None else f"{reward:.2f}",
        )
        allowed = (Verdict.WRONG_ANSWER, Verdict.COMPILE_ERROR) if expected is None else (expected,)
        if verdict not in allowed:
            surprises.append(f"the candidate that {story}: {verdict}: {row['facts']}")
    return table, surprises
