"""Copies, sums, products and orders of numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import torch

from tests.unit.problems.oracle import Oracle


def identity(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The first argument."""
    return data[0].double()


def vectoradd(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sum of the first two arguments."""
    return data[0].double() + data[1].double()


def conv2d(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of the description, over all windows of the images."""
    image, weights, _ = data
    side = weights.shape[-1]
    windows = image.double().unfold(2, side, 1).unfold(3, side, 1)
    return torch.einsum("biyxvu,oivu->boyx", windows, weights.double())


def grayscale(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Each pixel times the weights of the description."""
    weights = torch.tensor([2989, 5870, 1140], dtype=torch.float64)
    return data[0].double() @ weights / 10000


def histogram(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """How often each byte is in the first argument, as Python counts."""
    counted = Counter(data[0].tolist())
    return torch.tensor([counted[byte] for byte in range(256)], dtype=torch.float64)


def matmul(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of all products."""
    a, b, _ = data
    return (a.double().unsqueeze(2) * b.double()).sum(dim=1)


def prefixsum(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sums of the first argument, by Python's own addition in float64."""
    return torch.tensor(list(itertools.accumulate(data[0].tolist())), dtype=torch.float64)


def sort(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The first argument in Python's own order."""
    return torch.tensor(sorted(data[0].tolist()), dtype=torch.float64)


def vectorsum(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The sum of the first argument, by a correctly rounded algorithm."""
    return torch.tensor([math.fsum(data[0].tolist())], dtype=torch.float64)


ORACLES = {
    "amd_identity": Oracle(identity, torch.float16),
    "identity": Oracle(identity, torch.float16),
    "vectoradd": Oracle(vectoradd, torch.float16),
    "conv2d": Oracle(conv2d, torch.float32),
    "grayscale": Oracle(grayscale, torch.float32),
    "histogram": Oracle(histogram, torch.int64),
    "matmul": Oracle(matmul, torch.float16),
    "prefixsum": Oracle(prefixsum, torch.float32),
    "sort": Oracle(sort, torch.float32),
    "vectorsum": Oracle(vectorsum, torch.float32),
}
