"""mixed_mla."""

from __future__ import annotations

from typing import Any

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[Any, ...]) -> torch.Tensor:
    """Each head of each sequence, with the cache in eight bits."""
    q, kv_data, _, kv_indptr, _ = data
    codes, scale = kv_data["fp8"]
    result = torch.zeros(q.shape[0], 16, 512, dtype=torch.float64)
    for sequence in range(q.shape[0]):
        entries = codes[kv_indptr[sequence] : kv_indptr[sequence + 1], 0].double() * scale.double()
        for head in range(16):
            scores = entries @ q[sequence, head].double() / 24
            powers = torch.exp(scores - scores.max())
            result[sequence, head] = (powers[:, None] * entries[:, :512]).sum(dim=0) / powers.sum()
    return result


ORACLE = Oracle(
    expected=expected,
    dtype=torch.bfloat16,
    tests=4,
    benchmarks=8,
    largest={"batchsize": 256, "kvseqlen": 8192},
    off=0.15,
)
