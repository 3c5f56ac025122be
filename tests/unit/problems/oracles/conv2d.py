"""conv2d."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of the description, over all windows of the images."""
    image, weights, _ = data
    side = weights.shape[-1]
    windows = image.double().unfold(2, side, 1).unfold(3, side, 1)
    return torch.einsum("biyxvu,oivu->boyx", windows, weights.double())


ORACLE = Oracle(
    expected=expected,
    dtype=torch.float32,
    tests=5,
    benchmarks=5,
    largest={"size": 256, "kernelsize": 32, "channels": 128, "batch": 1},
)
