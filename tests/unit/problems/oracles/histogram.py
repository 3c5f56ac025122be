"""histogram."""

from __future__ import annotations

from collections import Counter

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """How often each byte is in the first argument, as Python counts."""
    counted = Counter(data[0].tolist())
    return torch.tensor([counted[byte] for byte in range(256)], dtype=torch.float64)


ORACLE = Oracle(expected=expected, dtype=torch.int64, tests=5, benchmarks=6, largest={"size": 10485760})
