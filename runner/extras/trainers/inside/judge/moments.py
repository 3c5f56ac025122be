"""Whether random outputs have the distribution of the reference's, as far as repeated draws of one input show.

Nothing is assumed of that distribution: the elements of a draw may depend on each other, seldom change, or have heavy
tails. So two sides are compared with what is left of their difference where draws are exchanged between them at random,
and one output with how far the reference's draws lie from each other. Of large outputs a secret part is compared.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence

import torch

from tasks.harness.shared.values import tensors_of

from .compare import as_real, kind_of

#: Draws of each side.
DRAWS = 48
#: Elements of a tensor that are compared at most.
_MOST_ELEMENTS = 4096
#: How often draws are exchanged.
_EXCHANGES = 400
#: A difference counts if it is above this multiple of the largest that an exchange makes, and above its limit.
_ABOVE = 1.5
#: Limit of the means' squared difference, averaged over all elements; 1 where both sides are alike.
_MOST_SHIFT = 1.6
#: Limit of the ratio of variances.
_MOST_RATIO = 1.5
#: One output may lie beyond the reference's draws by this multiple of their range, and by this much.
_RANGES = 3.0
_BEYOND = 0.25
#: A single element counts as no further away than this, in standard deviations.
_FAR = 10.0
#: A single element counts as no larger than this, in sizes of the tensor.
_HUGE = 1e9
#: An element is still if it varies by less than this part of the tensor's size.
_STILL = 1e-6
#: Two elements are the same if they differ by less than this part of the tensor's size.
_SAME = 1e-3
#: The part of the mean variance that is added to that of each element: one that seldom changes may not have done so.
_SELDOM = 0.05


#: Draws of the reference and of a candidate, of the same elements -> why they differ.
_Comparison = Callable[[torch.Tensor, torch.Tensor], str | None]


class Draws:
    """Outputs of the reference for one input, under different seeds; what is compared of them, as draws x elements."""

    def __init__(self) -> None:
        self._kinds: list[object] = []
        self._picks: list[torch.Tensor | None] = []
        self._wants: list[list[torch.Tensor]] = []

    def __len__(self) -> int:
        return len(self._wants)

    def add(self, output: object) -> None:
        """Add a draw."""
        if not self._wants:
            self._kinds = list(map(kind_of, tensors_of(output)))
            self._picks = [_picked(as_real(item).numel()) for item in tensors_of(output)]
        numbers = self._numbers(output)
        if numbers is None:
            # Draws of other shapes than the first: no output can be compared with them element by element.
            self._kinds.append(None)
        else:
            self._wants.append(numbers)

    def _numbers(self, output: object) -> list[torch.Tensor] | None:
        items = tensors_of(output)
        if list(map(kind_of, items)) != self._kinds:
            return None
        flat = [as_real(item).reshape(-1) for item in items]
        return [
            (item if picks is None else item[picks.to(item.device)]).double().cpu()
            for item, picks in zip(flat, self._picks, strict=True)
        ]

    def implausible(self, output: object) -> str | None:
        """Why one output cannot be a draw, as a sentence; None: it can.

        Of a candidate that answers otherwise when it is asked the same again, this is all that can be judged.
        """
        return self._compared([output], _implausible)

    def unlike(self, outputs: Sequence[object]) -> str | None:
        """Why as many draws of a candidate differ from these, as a sentence; None: they are alike."""
        return self._compared(outputs, _unlike)

    def _compared(self, outputs: Sequence[object], compared: _Comparison) -> str | None:
        drawn = [self._numbers(output) for output in outputs]
        haves = [numbers for numbers in drawn if numbers is not None]
        if len(haves) < len(drawn):
            return "the number of its tensors, a shape, a dtype or a device is another one, or changes with the seed"
        for index in range(len(self._kinds)):
            want = torch.stack([draw[index] for draw in self._wants])
            have = torch.stack([draw[index] for draw in haves])
            if bool((want.isfinite().all(0) & ~have.isfinite().all(0)).any()):
                return f"tensor {index}: it is not finite"
            finite = want.isfinite().all(0) & have.isfinite().all(0)
            problem = compared(want[:, finite], have[:, finite]) if bool(finite.any()) else None
            if problem is not None:
                return f"tensor {index}: {problem}"
        return None


def _picked(elements: int) -> torch.Tensor | None:
    """Secret places of elements; None: all."""
    if elements <= _MOST_ELEMENTS:
        return None
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randint(elements, (_MOST_ELEMENTS,), generator=generator)


def _size(want: torch.Tensor) -> float:
    return float(want.square().mean().sqrt()) or 1.0


def _implausible(want: torch.Tensor, have: torch.Tensor) -> str | None:
    """Compare one draw with each of the others as each of these compares with the rest."""
    count = want.shape[0]
    rest = (want.sum(0) - want) / (count - 1)
    spread = (want.square().sum(0) - want.square()) / (count - 1) - rest.square()
    ours = _distances(want, rest, spread, _size(want))
    theirs = _distances(have, want.mean(0, keepdim=True), want.var(0, correction=0, keepdim=True), _size(want))
    low, high = ours.min(0).values, ours.max(0).values
    room = _RANGES * (high - low) + _BEYOND
    if bool(((theirs < low - room) | (theirs > high + room)).any()):
        return f"it lies further from {count} draws of the reference than these from each other"
    return None


def _distances(item: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, size: float) -> torch.Tensor:
    """How far each draw lies from a mean, in squares; and along its sign."""
    variance = variance.clamp(min=0.0)
    variance = variance + _SELDOM * variance.mean(1, keepdim=True) + (_SAME * size) ** 2
    gap = ((item - mean) / variance.sqrt()).clamp(-_FAR, _FAR)
    return torch.stack([gap.square().mean(1), (gap * mean.sign()).mean(1)], dim=1)


def _unlike(want: torch.Tensor, have: torch.Tensor) -> str | None:
    size = _size(want)
    still = (want.var(0) <= (_STILL * size) ** 2) & (have.var(0) <= (_STILL * size) ** 2)
    if bool(still.any()) and float((want.mean(0) - have.mean(0))[still].abs().max()) > _SAME * size:
        return "elements that do not depend on the seed differ"
    # Squares of numbers beyond this may be infinite.
    both = (torch.cat([want, have])[:, ~still] / size).clamp(-_HUGE, _HUGE)
    if not both.numel():
        return None
    both = both - both.mean(0)
    shifts, ratios = _differences(both / both.var(0, correction=0).sqrt().clamp(min=1e-300), len(want))
    if float(shifts[0]) > max(_MOST_SHIFT, _ABOVE * float(shifts[1:].max())):
        return f"its mean over {len(have)} seeds is another one"
    if abs(float(ratios[0])) > max(math.log(_MOST_RATIO), _ABOVE * float(ratios[1:].abs().max())):
        return f"its variance is {math.exp(float(ratios[0])):.2g} times that of the reference"
    return None


def _differences(both: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift of the means, and logarithm of the ratio of variances.

    The first is of the first `count` draws against the rest, all others of as many that are taken at random.
    """
    total = both.shape[0]
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    keys = torch.rand(1 + _EXCHANGES, total, generator=generator)
    keys[0] = torch.arange(total)
    ours = torch.zeros_like(keys, dtype=torch.float64).scatter_(1, keys.argsort(1)[:, :count], 1.0)
    means, variances = [], []
    for members in (ours, 1.0 - ours):
        weights = members / members.sum(1, keepdim=True)
        means.append(weights @ both)
        variances.append((weights @ both.square() - means[-1].square()).mean(1).clamp(min=1e-12))
    shifts = (means[0] - means[1]).square().mean(1) * count * (total - count) / total
    return shifts, (variances[1] / variances[0]).log()
