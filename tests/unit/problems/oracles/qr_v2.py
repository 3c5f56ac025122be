"""qr_v2."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle
from tests.unit.problems.oracles.qr import expected

ORACLE = Oracle(
    expected=expected,
    dtype=torch.float32,
    tests=22,
    benchmarks=12,
    largest={"batch": 640, "n": 512, "case": "mixed"},
    unique=False,
)
