"""fp8_quant."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Quotients and scales, one group after the other."""
    x, _, x_s = data
    quotients, scales = torch.empty_like(x, dtype=torch.float64), torch.empty_like(x_s, dtype=torch.float64)
    size = x.shape[1] // x_s.shape[1]
    for token in range(x_s.shape[0]):
        for group in range(x_s.shape[1]):
            place = slice(group * size, group * size + size)
            numbers = x[token, place].tolist()
            scale = max(1e-10, *map(abs, numbers)) / 448
            quotients[token, place] = torch.tensor([number / scale for number in numbers], dtype=torch.float64)
            scales[token, group] = scale
    return [quotients, scales]


ORACLE = Oracle(
    expected=expected,
    dtype=torch.float32,
    tests=5,
    benchmarks=3,
    largest={"num_tokens": 4096, "hidden_dim": 7168, "group_size": 128},
)
