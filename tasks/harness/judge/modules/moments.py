"""Whether two random outputs have the same distribution, as far as repeated draws of one input show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .compare import as_real, kind_of
from .distributions import tensors_of

#: Draws of each side.
DRAWS = 48
#: Of the mean over all elements of the squared standardised difference (1 if they are alike), and of the ratio of the
#: two variances: limits that honest draws pass, with room for few elements.
_MOST_CHI, _MOST_RATIO = 1.6, 1.5
_SIGMAS = 6.0


def unlike(expected: Sequence[object], found: Sequence[object]) -> str | None:
    """Why the draws differ, as a sentence; None: they are alike.

    Args:
        expected: outputs of the reference under different seeds, for one input.
        found: as many of the candidate, for the same input.
    """
    wants = [tensors_of(item) for item in expected]
    haves = [tensors_of(item) for item in found]
    if any(len(draw) != len(wants[0]) for draw in (*wants, *haves)):
        return "the number of tensors differs"
    for index, first in enumerate(wants[0]):
        if any(kind_of(draw[index]) != kind_of(first) for draw in (*wants, *haves)):
            return f"tensor {index} has several shapes, dtypes or devices"
        want = torch.stack([as_real(draw[index]).double() for draw in wants])
        have = torch.stack([as_real(draw[index]).double() for draw in haves])
        problem = _unlike_tensor(want, have)
        if problem is not None:
            return f"tensor {index}: {problem}"
    return None


def _unlike_tensor(want: torch.Tensor, have: torch.Tensor) -> str | None:
    if not bool(have.isfinite().all()):
        return "it is not finite"
    count = want.shape[0]
    variance, other = want.var(0), have.var(0)
    scale = float(want.square().mean().sqrt()) or 1.0
    moving = variance > (1e-6 * scale) ** 2
    still = ~moving
    if bool(still.any()):
        gap = float((want.mean(0)[still] - have.mean(0)[still]).abs().max())
        if gap > 1e-3 * scale or float(other[still].max()) > (1e-3 * scale) ** 2:
            return "elements that do not depend on the seed differ"
    elements = int(moving.sum())
    if not elements:
        return None
    error = (variance[moving] + other[moving]) / count
    chi = float(((want.mean(0)[moving] - have.mean(0)[moving]) ** 2 / error).mean())
    # Elements of one draw may depend on each other, so few of them say as little as one.
    if chi > _MOST_CHI + _SIGMAS * math.sqrt(2 / elements):
        return f"its mean over {count} seeds is another one"
    ratio = float(other[moving].mean() / variance[moving].mean())
    room = _MOST_RATIO + _SIGMAS * math.sqrt(4 / (count * elements))
    if not 1 / room <= ratio <= room:
        return f"its variance is {ratio:.2g} times that of the reference"
    return None
