"""The course of a case: which of its calls count, how long they are, when it ends, how many control calls it needs.

A worker's word decides none of this. Everything here comes from spans of the judge's clock, from calls of trusted code,
and from the judge's own processor time; no function takes a claim. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Self

from .audit import FLOOR_NS, ControlCosts, Sample
from .hand_over import Bound
from .stats import quantile, spread
from .stopping import Progress, Waits

#: A call took longer than others by chance if it exceeds the median by this part of it, beside what a hand-over varies.
_LONGER_SHARE = 0.02
#: Part of the calls that may be set aside where no control calls say how often something disturbs one.
_ASIDE_SHARE = 0.05
#: Part of the calls that may be set aside in any case.
_MOST_ASIDE = 0.5
#: Stalls are more than chance explains above the expected number, this many standard deviations, and one.
_STALL_SIGMAS = 3.0
#: Where nothing is known of the hand-over: multiples of the distance from the median span to the upper quartile.
_SPREADS = 4.0


@dataclass(frozen=True, kw_only=True)
class HandOverFacts:
    """What calls of trusted code say of a hand-over, in nanoseconds."""

    mean_ns: float
    sd_ns: float
    #: How much more than usual a call costs at most that nothing disturbs.
    single_ns: float
    #: The part of the calls that something disturbs; of those among them that are slow and did not wait for a core; and
    #: of those whose copy of the output stalls. None: not told apart from the first.
    disturbed: float = _ASIDE_SHARE
    slow: float | None = None
    stalled: float | None = None
    #: Standard error of the latter.
    stalled_error: float = 0.0
    #: The part of the calls of trusted code that was seen to be disturbed, or to stall; and to be slow without a wait.
    seen: float = 0.0
    seen_slow: float = 1.0

    @classmethod
    def of_controls(cls, costs: ControlCosts, *, stalled: int, size_ratio: float = 1.0) -> Self:
        """From control calls, and how many of them stalled; larger copies stall more often (`ControlRow.size_ratio`).

        Parts are Laplace's: few calls do not say that there is none. The error is that of the same distribution (a
        beta distribution of `stalled` and `calls - stalled`, each and one). Calls that only tell make no part smaller
        but that of stalls: what is rare among many would be set aside by none.
        """
        own = costs.count + costs.disturbed
        calls = own + costs.telling

        def part(number: int, telling: int, *, more: int) -> float:
            """Of these calls, or of all if that is more; `more`: 1 as Laplace, 0 as seen."""
            return max((number + more) / max(own + 2 * more, 1), (number + telling + more) / max(calls + 2 * more, 1))

        calm = 1 - stalled / max(calls, 1)
        slope = size_ratio * ((calls - stalled + 1) / (calls + 2)) ** (size_ratio - 1)
        return cls(
            mean_ns=costs.mean_ns,
            sd_ns=costs.sd_ns,
            single_ns=costs.single_ns,
            disturbed=part(costs.disturbed, costs.telling_disturbed, more=1),
            slow=part(costs.slow, costs.telling_slow, more=1),
            stalled=((1 - calm**size_ratio) * calls + 1) / (calls + 2),
            stalled_error=slope * math.sqrt((stalled + 1) * (calls - stalled + 1) / (calls + 3)) / (calls + 2),
            seen=part(costs.disturbed, costs.telling_disturbed, more=0) + 1 - calm**size_ratio,
            seen_slow=part(costs.slow, costs.telling_slow, more=0),
        )

    @classmethod
    def of_bounds(cls, spans_ns: Sequence[float], bounds: Sequence[Bound]) -> Self:
        """From a calibration, as it bounds these calls."""
        margin_ns = median(bound.margin_ns for bound in bounds)
        mean_ns = median(span_ns - bound.kernel_ns for span_ns, bound in zip(spans_ns, bounds, strict=True))
        return cls(mean_ns=mean_ns, sd_ns=margin_ns / _SPREADS, single_ns=margin_ns)

    @classmethod
    def unknown(cls, spans_ns: Sequence[float]) -> Self:
        """From nothing but the calls themselves."""
        ordered = sorted(spans_ns)
        return cls(mean_ns=0.0, sd_ns=0.0, single_ns=_SPREADS * (quantile(ordered, 0.75) - median(ordered)))


def spans_of(samples: Sequence[Sample]) -> list[float]:
    """Their spans on the judge's clock, in nanoseconds."""
    return [float(sample.outside_ns) for sample in samples]


def _limit_ns(spans_ns: Sequence[float], facts: HandOverFacts) -> float:
    """Calls that took longer did so by chance."""
    return (1 + _LONGER_SHARE) * median(spans_ns) + facts.single_ns


def kept(samples: Sequence[Sample], facts: HandOverFacts) -> list[int]:
    """The calls that count: all but the longest of those that took longer by chance, in their order.

    As many are set aside, at most, as something disturbs calls of trusted code; of calls that stalled as many as those
    do, and of calls that did not wait for a core as many as are slow without that: others may be slow by themselves.
    On a device, a call beside which the worker used processor or device (`Sample.exclusive`) is set aside first.
    """
    limit_ns = _limit_ns(spans_of(samples), facts)
    numbers = range(len(samples))
    longer = [n for n in numbers if samples[n].outside_ns > limit_ns or not samples[n].exclusive]
    longer.sort(key=lambda number: (samples[number].exclusive, -samples[number].outside_ns))
    parts = {False: facts.disturbed, True: 0.0 if facts.stalled is None else facts.stalled}
    aside: set[int] = set()
    for stalled, share in parts.items():
        part = [n for n in longer if facts.stalled is None or samples[n].stalled is stalled]
        if not stalled and facts.slow is not None:
            slow = [n for n in part if _is_slow(samples[n])]
            own = set(slow[math.floor(facts.slow * len(samples)) :])
            part = [n for n in part if n not in own]
        left = math.floor(_MOST_ASIDE * len(samples)) - len(aside)
        aside.update(part[: min(math.floor(share * len(samples)), left)])
    return [number for number in numbers if number not in aside]


def unexplained(samples: Sequence[Sample], counted: Sequence[int], facts: HandOverFacts) -> int:
    """How many of the calls that are set aside, which may be long by themselves, calls of trusted code do not explain.

    `counted`: the numbers of the others. What was set aside for the worker's threads alone is not long.
    """
    limit_ns = _limit_ns(spans_of(samples), facts)
    aside = [samples[number] for number in set(range(len(samples))).difference(counted)]
    longer = [sample for sample in aside if sample.outside_ns > limit_ns]
    slow = sum(map(_is_slow, longer))
    return max(
        len(longer) - math.floor(facts.seen * len(samples)),
        slow - math.floor(facts.seen_slow * len(samples)),
        0,
    )


def _is_slow(sample: Sample) -> bool:
    """Whether a long call is so by its kernel, or by a disturbance of which the scheduler knows nothing."""
    return sample.exclusive and not sample.stalled and not sample.waited


def with_unexplained(times_ns: Sequence[float], number: int) -> list[float]:
    """The times that count, and that of the longest for each call that is set aside without an explanation.

    Their mean is winsorised (J. Tukey, The Future of Data Analysis, Annals of Mathematical Statistics 33, 1962): one
    delay, however long, does not move it far, and a kernel that is often slow stays slow. They stand in the middle,
    where they make no drift.
    """
    middle = len(times_ns) // 2
    return [*times_ns[:middle], *[max(times_ns)] * number, *times_ns[middle:]]


def stalls_too_often(samples: Sequence[Sample], facts: HandOverFacts) -> bool:
    """Whether reading stalled in more of the calls than chance explains."""
    stalls = sum(sample.stalled for sample in samples)
    expected = (facts.disturbed if facts.stalled is None else facts.stalled) * len(samples)
    sd = math.hypot(math.sqrt(expected), facts.stalled_error * len(samples))
    return stalls > expected + _STALL_SIGMAS * sd + 1


def with_copies(samples: Sequence[Sample], facts: HandOverFacts) -> list[Sample]:
    """The calls as they are; or, if reading stalled in more of them than chance explains, with their whole copies.

    A stall is in its call's span in any case. One by chance, as a busy host makes, says nothing of the other calls.
    """
    if not stalls_too_often(samples, facts):
        return list(samples)
    return [replace(sample, outside_ns=sample.outside_ns + sample.late_ns, with_copy=True) for sample in samples]


def late_ns(samples: Sequence[Sample]) -> float:
    """What bytes that are written late can gain in all calls that count together, but with a chance of a third.

    A byte that is late by a part of its copy is missing with that probability, so all calls gain one copy: the longest,
    since a worker may have made the copies of some calls longer. A call in whose copy it slept gains at most the time
    before, in which the judge hardly read. Those tell how long a call takes at most, and no other gains more than that.
    """
    awake = [sample for sample in samples if not sample.slept]
    asleep = [sample for sample in samples if sample.slept]
    awake_ns = max((sample.copy_ns for sample in awake), default=0)
    if asleep:
        awake_ns = min(awake_ns, len(awake) * max(sample.outside_ns + sample.late_ns for sample in asleep))
    return awake_ns + sum(sample.late_ns for sample in asleep)


def waits_of(samples: Sequence[Sample], unexplained: int) -> Waits:
    """How long calls waited for a core. `unexplained`: how many more count as the longest (`with_unexplained`).

    The kernel counts waits before and after a span, too. So none is longer than what its call took beyond the shortest.
    """
    spans_ns = [sample.outside_ns for sample in samples]
    shortest_ns, longest_ns = min(spans_ns), max(spans_ns)
    waits_ns = [min(sample.delayed_ns or 0, sample.outside_ns - shortest_ns) for sample in samples]
    return Waits(
        span_ns=fmean([*spans_ns, *[longest_ns] * unexplained]),
        waited_ns=fmean([*waits_ns, *[waits_ns[spans_ns.index(longest_ns)]] * unexplained]),
    )


def length_ns(spans_ns: Sequence[float], facts: HandOverFacts) -> float:
    """How long a call takes."""
    return max(median(spans_ns) - facts.mean_ns, FLOOR_NS)


def progress(samples: Sequence[Sample], facts: HandOverFacts, *, judged_ns: float, checks_ns: float) -> Progress:
    """What the end of a case is decided by. The rest as in `Progress`."""
    numbers = kept(samples, facts) if samples else []
    longer = unexplained(samples, numbers, facts) if samples else 0
    spans_ns = spans_of([samples[number] for number in numbers])
    count = len(spans_ns)
    mean_ns = max(fmean(spans_ns) - facts.mean_ns, FLOOR_NS) if spans_ns else 0.0
    # What the hand-over varies is not the kernel's.
    variance = max(spread(spans_ns) ** 2 - facts.sd_ns**2, 0.0)
    return Progress(
        count=count,
        mean_ns=mean_ns,
        sd_ns=math.sqrt(variance * count / (count - 1)) if count > 1 else 0.0,
        unexplained=longer,
        judged_ns=judged_ns,
        checks_ns=checks_ns,
    )
