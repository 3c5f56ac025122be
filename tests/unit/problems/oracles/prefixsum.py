"""prefixsum."""

from __future__ import annotations

import itertools

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of the first argument, by Python's own addition in float64."""
    return torch.tensor(list(itertools.accumulate(data[0].tolist())), dtype=torch.float64)


ORACLE = Oracle(expected=expected, dtype=torch.float32, tests=5, benchmarks=11, largest={"size": 268435456})
