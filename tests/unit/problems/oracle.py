"""The record of which `oracles` has one for each task, and how to find it by the name of a task folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

TASKS = Path(__file__).resolve().parents[3] / "tasks" / "problems"
#: Every task folder that one process on one device evaluates.
NAMES = tuple(
    sorted(
        path.parent.name
        for path in TASKS.glob("*/task.yml")
        if not yaml.safe_load(path.read_text()).get("multi_gpu", False)
    )
)

#: What a kernel returns: a tensor, or a sequence of them.
Output = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The right answer, or one of them, and what the public board of that name has."""

    #: The task's data -> the exact result in float64.
    expected: Callable[[Any], Output]
    #: Of all outputs, or of each.
    dtype: torch.dtype | Sequence[torch.dtype]
    #: How many tests and benchmarks the public board has.
    tests: int
    benchmarks: int
    #: Arguments of its largest benchmark.
    largest: Mapping[str, object]
    #: Whether there is one right answer, element by element; else identities are checked.
    unique: bool = True
    #: An error that is beyond the task's tolerances, relative and absolute.
    off: float = 0.02

    def answer(self, data: object) -> Output:
        """The exact result, rounded once to the output's type."""
        exact, dtype = self.expected(data), self.dtype
        if isinstance(dtype, torch.dtype):
            return exact.to(dtype) if isinstance(exact, torch.Tensor) else [tensor.to(dtype) for tensor in exact]
        return [tensor.to(each) for tensor, each in zip(exact, dtype, strict=True)]


def oracle_of(name: str) -> Oracle:
    """The oracle of a task folder."""
    # They need this module.
    from tests.unit.problems.oracles import ORACLES

    return ORACLES[name]


def leaves(output: object) -> list[torch.Tensor]:
    """The tensors in whatever a task makes or a kernel returns, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if dataclasses.is_dataclass(output):
        output = vars(output)
    if isinstance(output, Mapping):
        output = list(output.values())
    return [tensor for item in output for tensor in leaves(item)] if isinstance(output, list | tuple) else []
