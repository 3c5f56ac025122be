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
    "amd_identity": Oracle(expected=identity, dtype=torch.float16, tests=5, benchmarks=7, largest={"size": 65536}),
    "identity": Oracle(expected=identity, dtype=torch.float16, tests=5, benchmarks=7, largest={"size": 65536}),
    "vectoradd": Oracle(expected=vectoradd, dtype=torch.float16, tests=5, benchmarks=5, largest={"size": 16384}),
    "conv2d": Oracle(
        expected=conv2d,
        dtype=torch.float32,
        tests=5,
        benchmarks=5,
        largest={"size": 256, "kernelsize": 32, "channels": 128, "batch": 1},
    ),
    "grayscale": Oracle(expected=grayscale, dtype=torch.float32, tests=3, benchmarks=6, largest={"size": 16384}),
    "histogram": Oracle(expected=histogram, dtype=torch.int64, tests=5, benchmarks=6, largest={"size": 10485760}),
    "matmul": Oracle(
        expected=matmul, dtype=torch.float16, tests=5, benchmarks=8, largest={"m": 4096, "n": 5120, "k": 4096}
    ),
    "prefixsum": Oracle(expected=prefixsum, dtype=torch.float32, tests=5, benchmarks=11, largest={"size": 268435456}),
    "sort": Oracle(expected=sort, dtype=torch.float32, tests=5, benchmarks=5, largest={"size": 100000000}),
    "vectorsum": Oracle(expected=vectorsum, dtype=torch.float32, tests=5, benchmarks=6, largest={"size": 52428800}),
}
