"""Random matrices of given structure; a file that only the judge has (`private` in runner.yml). Self-contained.

All are float32, (batch, n, n), made on the device of the generator, which is advanced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

#: count, n, decades, generator -> so many matrices.
Maker = Callable[[int, int, int, torch.Generator], torch.Tensor]
#: Of the matrices of a mixed batch, those of its first kind, beside one of each other kind.
_FIRST_WEIGHT = 6


def seeded(seed: int) -> torch.Generator:
    """A generator on the accelerator, or on the CPU of hosts without one."""
    return torch.Generator(device="cuda" if torch.cuda.is_available() else "cpu").manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """From the standard normal distribution."""
    return torch.randn(*shape, device=generator.device, generator=generator)


def signs(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """-1 or 1, at random."""
    return torch.randint(0, 2, shape, device=generator.device, generator=generator) * 2.0 - 1


def shuffled(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The last dimension in an order of its own for each row."""
    keys = torch.rand(values.shape, device=generator.device, generator=generator)
    return values.gather(-1, keys.argsort(dim=-1))


def decades(n: int, count: float, generator: torch.Generator) -> torch.Tensor:
    """Numbers from 1 down to 10**-count, evenly in their logarithms."""
    return torch.logspace(0, -count, n, device=generator.device)


def symmetric(matrix: torch.Tensor) -> torch.Tensor:
    """Its lower triangle, mirrored."""
    lower = matrix.tril(-1)
    return matrix.tril_().add_(lower.mT) if matrix.is_contiguous() else matrix.tril() + lower.mT


def band(n: int, width: torch.Tensor | int, generator: torch.Generator) -> torch.Tensor:
    """Whether an element lies at most `width` beside the diagonal."""
    places = torch.arange(n, device=generator.device)
    return (places[:, None] - places).abs() <= width


def orthogonal(batch: int, n: int, generator: torch.Generator) -> torch.Tensor:
    """Dense, by three changes of signs and two cosine transforms between them: that is quicker than a factorisation."""
    places = torch.arange(n, dtype=torch.float64, device=generator.device)
    cosines = torch.cos(torch.pi / n * (places + 0.5) * places[:, None]) * (2 / n) ** 0.5
    cosines[0] *= 0.5**0.5
    outer = signs(2, batch, n, generator=generator).double()
    inner = cosines @ (signs(batch, n, 1, generator=generator).double() * cosines)
    dense: torch.Tensor = outer[0, :, :, None] * inner * outer[1, :, None, :]
    return dense.float()


def with_eigenvalues(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Symmetric and dense, with the eigenvalues (batch, n), rounded to float32."""
    q = orthogonal(values.shape[0], values.shape[1], generator)
    return symmetric((q * values[:, None]) @ q.mT)


def mixed(makers: Mapping[str, Maker], batch: int, n: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Each matrix of a kind of its own, about half of them of the first, and at least one of another."""
    names = list(makers)
    weights = torch.ones(len(names), device=generator.device)
    weights[0] = _FIRST_WEIGHT
    labels = torch.multinomial(weights, batch, replacement=True, generator=generator)
    labels[0] = torch.randint(1, len(names), (), device=generator.device, generator=generator)
    labels[1:2] = 0
    labels = shuffled(labels, generator)
    matrices = torch.empty(batch, n, n, device=generator.device)
    for label, name in enumerate(names):
        places = torch.nonzero(labels == label).flatten()
        if len(places):
            matrices[places] = makers[name](len(places), n, count, generator)
    return matrices
