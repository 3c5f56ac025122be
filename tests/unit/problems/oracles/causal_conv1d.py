"""causal_conv1d."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Each channel times a matrix with the weights on its diagonals, and the bias."""
    x, weight, bias = (tensor.double() for tensor in data)
    samples, width = x.shape[2], weight.shape[1]
    time, source = torch.meshgrid(torch.arange(samples), torch.arange(samples), indexing="ij")
    place = source - time + width - 1
    matrices = weight[:, place.clamp(0, width - 1)] * ((place >= 0) & (place < width))
    return torch.einsum("dts,bds->bdt", matrices, x) + bias[:, None]


ORACLE = Oracle(
    expected=expected, dtype=torch.float32, tests=5, benchmarks=3, largest={"B": 1, "D": 2560, "S": 4096, "W": 4}
)
