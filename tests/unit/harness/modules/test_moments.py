"""Random outputs: honest generators pass, whatever their seeds; others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 torch's own habit

from tasks.harness.judge.modules.moments import DRAWS, unlike


def _draws(make: Callable[[], torch.Tensor]) -> list[object]:
    return [make() for _ in range(DRAWS)]


@pytest.mark.parametrize("size", [1, 4, 64, 4096])
@pytest.mark.parametrize("seed", range(5))
def test_honest_draws_are_alike(size: int, seed: int) -> None:
    """Honest draws are alike."""
    torch.manual_seed(seed)
    x = torch.randn(size)
    for make in (lambda: F.dropout(x, 0.5), lambda: F.dropout(x, 0.1).sum(), lambda: x + torch.randn(size)):
        assert unlike(_draws(make), _draws(make)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x,
        lambda x: F.dropout(x, 0.25),
        lambda x: F.dropout(x, 0.5) * 0.5,
        torch.randn_like,
        torch.zeros_like,
        lambda x: F.dropout(x.flip(0), 0.5),
        lambda x: F.dropout(x, 0.5)[:-1],
        lambda x: x / 0,
    ],
)
def test_other_distributions_are_not(wrong: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Other distributions are not."""
    torch.manual_seed(1)
    x = torch.randn(256)
    assert unlike(_draws(lambda: F.dropout(x, 0.5)), _draws(lambda: wrong(x))) is not None
