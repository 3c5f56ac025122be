"""cross_entropy."""

from __future__ import annotations

import torch

from tests.unit.problems.oracle import Oracle


def expected(data: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Losses and gradients, one row after the other."""
    losses, gradients = [], []
    for logits, target, factor in zip(*data, strict=True):
        powers = torch.exp(logits.double() - logits.double().max())
        wanted = torch.arange(logits.numel()) == target
        losses.append(powers.sum().log() + logits.double().max() - logits[wanted].double().sum())
        gradients.append((powers / powers.sum() - wanted.double()) * factor.double())
    return [torch.stack(losses), torch.stack(gradients)]


ORACLE = Oracle(
    expected=expected,
    dtype=(torch.float32, torch.bfloat16),
    tests=3,
    benchmarks=3,
    largest={"vocab_size": 128256, "batch_size": 4096},
)
