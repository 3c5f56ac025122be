"""Random outputs: honest generators pass, whatever they make random and whatever their seeds; others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 torch's own habit

from runner.extras.trainers.inside.judge.moments import DRAWS, Draws

Make = Callable[[torch.Tensor], torch.Tensor]
#: What modules make random: elements alone, seldom or often, together, of heavy tails, beside what is not finite.
_RANDOM: Mapping[str, Make] = {
    **{f"dropout of {rate:g}": partial(F.dropout, p=rate) for rate in (0.001, 0.1, 0.5, 0.9)},
    "dropout of rows": lambda x: x * (torch.rand(len(x), 1) > 0.2) / 0.8,
    "one factor": lambda x: x * torch.rand(1),
    "one that is seldom another": lambda x: x * (3 if torch.rand(1) < 0.1 else 1),
    "dropout, then a product": lambda x: F.dropout(x, 0.1) @ x.T,
    "dropout, then a sum": lambda x: F.dropout(x, 0.1).sum(),
    "noise": lambda x: x + torch.randn_like(x),
    "noise of heavy tails": lambda x: x + torch.empty_like(x).cauchy_(),
    "bools": lambda x: torch.rand_like(x) < 0.3,
    "integers": lambda x: torch.randint(0, 9, x.shape),
    "complex numbers": lambda x: torch.complex(F.dropout(x, 0.5), x),
    "a masked part": lambda x: F.dropout(x, 0.5).masked_fill(x < -1, -torch.inf),
}


def _of(make: Make, x: torch.Tensor) -> Draws:
    draws = Draws()
    for _ in range(DRAWS):
        draws.add(make(x))
    return draws


@pytest.mark.parametrize("make", _RANDOM.values(), ids=_RANDOM)
@pytest.mark.parametrize(("shape", "seeds"), [((4, 4), 5), ((32, 32), 5), ((200, 200), 1)])
def test_honest_draws_are_alike(shape: tuple[int, int], seeds: int, make: Make) -> None:
    """Draws of the same distribution are, all together and each alone."""
    for seed in range(seeds):
        torch.manual_seed(seed)
        x = torch.randn(shape)
        draws = _of(make, x)
        assert draws.unlike([make(x) for _ in range(DRAWS)]) is None
        assert draws.implausible(make(x)) is None


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
        lambda x: x * 1e300,
        lambda x: F.dropout(x, 0.5, training=bool(x[0, 0] > 9)),
        lambda x: x * 2 * (torch.arange(x.numel()).view(x.shape) % 2),
    ],
)
def test_other_distributions_are_not(wrong: Make) -> None:
    """Other distributions are not; nor is one output that a draw cannot be."""
    torch.manual_seed(1)
    x = torch.randn(16, 16, dtype=torch.float64)
    assert _of(_RANDOM["dropout of 0.5"], x).unlike([wrong(x) for _ in range(DRAWS)]) is not None


@pytest.mark.parametrize("name", ["dropout of 0.1", "dropout of 0.5", "noise", "dropout, then a product"])
@pytest.mark.parametrize("wrong", [torch.zeros_like, torch.ones_like, lambda x: x.flip(0), lambda x: x / 0])
def test_one_output_that_no_draw_is(name: str, wrong: Make) -> None:
    """It is refused alone: a candidate that is asked the same again may answer otherwise."""
    torch.manual_seed(1)
    x = torch.randn(64, 64)
    assert _of(_RANDOM[name], x).implausible(wrong(_RANDOM[name](x))) is not None
