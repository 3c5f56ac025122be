"""Decides how the calls of a case count: as claims that the judge's clock bounds, or as the judge's measure. Pure.

Every call has two times: the worker's claim, and the span on the judge's clock from the release of the inputs to the
end. The part of a span that is not the kernel is the hand-over. Control calls measure it: they hand over as many bytes
in the same way, at the same moments. They run in a process of the judge, which no submission can slow or recognise.
Devices and tasks of several ranks have no such process. There a calibration before the submission is loaded takes its
place.

The rule: claims count if the hand-over is known to within `tolerance` of them, and if at most that much of the spans
stays unexplained. All other calls are measured: span less hand-over, at the upper end of its possible range. Higher
claims count instead: beside control calls if those of the whole case are higher, after a calibration each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Self

from .hand_over import Bound
from .stats import quantile, spread

#: No Python function takes tensors and returns one faster. Keeps one time from pulling a mean to zero.
FLOOR_NS = 1_000
#: Fewer control calls do not give an estimate.
FEWEST_CONTROLS = 6
#: A difference must exceed so many standard errors to be significant.
_SIGMAS = 2.0
#: The same, one-sided, for the lower end of the hand-over.
_SIGMAS_LOW = 1.65
#: A kernel that fills the caches leaves them colder than a control call, and a judge that has slept wakes up late. This
#: much is allowed for beside the statistical noise: fixed, and as a part of the claim.
_COLD_NS = 1_000.0
_COLD_SHARE = 0.015
#: The worker's own code takes up to this long for one more output tensor, within the span and after the claim (0.3 µs
#: with cold caches). A submission in machine code could do it at once, and keep the time.
_TENSOR_NS = 500.0
#: One call is not believed if its hand-over seems too long by more than the sum of three: a multiple of the distance
#: from the median to the upper quartile of control calls; a fixed time; a part of the claim.
_SPREADS = 4.0
_SINGLE_NS = 3_000.0
_SINGLE_SHARE = 0.02
#: A call is disturbed if judge or worker waited for a core for longer than this.
CROWDED_NS = 20_000
#: Each call that is not believed counts as measured. If more than this share is not, all calls count as measured.
_MOST_DOUBTED = 0.5
#: A case is rejected if more than this share of its calls claim too little.
_FORGED_SHARE = 0.5
#: A claim is too little below this part of the time that must have passed, with more than this time missing, and more
#: than so many hand-overs: where these are slow, the worker's own code is. The time in which other processes had the
#: cores does not count.
_FORGED_PART = 0.5
_FORGED_GAP_NS = 300_000
_FORGED_HAND_OVERS = 10.0


def waited(delayed_ns: int | None, outside_ns: float) -> bool:
    """Whether judge or worker waited for a core for a part of a call that matters."""
    return (delayed_ns or 0) > max(CROWDED_NS, _SINGLE_SHARE * outside_ns)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One timed call."""

    claim_ns: int
    outside_ns: int
    #: From a calibration. None where control calls bound it, or nothing does.
    bound: Bound | None = None
    #: Nothing of its span can be subtracted: on a CPU it ended by message, beside which there are no control calls.
    whole: bool = False
    #: How long the copy of its output went on after the span, how much of this the worker could write in, and whether a
    #: block stalled.
    copy_ns: int = 0
    late_ns: int = 0
    stalled: bool = False
    #: How much of the copy a stall has put into the span, without the stall.
    copied_ns: float = 0.0
    #: Whether the span holds `late_ns`, too.
    with_copy: bool = False
    #: How long judge and worker were ready to run and did not; None where the kernel does not tell.
    delayed_ns: int | None = None
    #: On a device: the host's work is in the outside span.
    by_host: bool = False
    #: On a device: whether the worker used nothing but its stream.
    exclusive: bool = True
    #: On the CPU: output tensors beside the first. The worker describes each after its claim, and may leave it out.
    more_tensors: int = 0

    @property
    def slept(self) -> bool:
        """Whether the worker was seen to sleep until the end of the copy."""
        return self.late_ns < self.copy_ns

    @property
    def waited(self) -> bool:
        """Whether judge or worker waited for a core for a part of it that matters."""
        return waited(self.delayed_ns, self.outside_ns)

    @property
    def claimed_ns(self) -> float:
        """The claim, at most the span on the judge's clock."""
        return float(max(min(self.claim_ns, self.outside_ns), FLOOR_NS))


@dataclass(frozen=True, kw_only=True)
class ControlRow:
    """Control calls in a row."""

    #: What each costs beside its kernel. Infinity: it waited for a core. NaN: the worker used one meanwhile.
    costs_ns: Sequence[float]
    #: How long their kernel took at least.
    kernel_ns: int = 0
    #: Of those that are not NaN: in how many the copy of the output stalled.
    stalled: int = 0
    #: Bytes of the submission's output by bytes of the output of these calls; at least 1.
    size_ratio: float = 1.0
    #: Whether they tell how many calls something disturbs, and nothing else.
    only_tells: bool = False


@dataclass(frozen=True, kw_only=True)
class ControlCosts:
    """What control calls cost beside their kernel, in nanoseconds."""

    mean_ns: float
    #: The lower quartile, and the median.
    quartile_ns: float
    median_ns: float
    #: Standard deviation of single calls, and their number.
    sd_ns: float
    count: int
    #: Calls that something disturbed, and that are left out: they waited for a core, or cost more than `single_ns`
    #: beyond the median.
    disturbed: int
    #: Of these, those that did not wait for a core.
    slow: int
    #: Calls that are in no other figure (`with_telling`); those of them that are as the two above.
    telling: int = 0
    telling_disturbed: int = 0
    telling_slow: int = 0
    #: Standard error of the mean. The machine drifts, so calls of one row are alike. Rows that differ by more than
    #: their calls explain make the error larger.
    error_ns: float
    #: How much more than the mean a single call may cost.
    single_ns: float

    @classmethod
    def of(cls, rows_ns: Sequence[Sequence[float]]) -> ControlCosts | None:
        """Summarise rows of control calls; None if too few. For infinity and NaN see `Workers.control`."""
        calls = sum(not math.isnan(cost) for row in rows_ns for cost in row)
        ready = sorted(cost for row in rows_ns for cost in row if math.isfinite(cost))
        if len(ready) < FEWEST_CONTROLS:
            return None
        middle = median(ready)
        single = _SPREADS * (quantile(ready, 0.75) - middle) + _SINGLE_NS
        rows = [[cost for cost in row if cost <= middle + single] for row in rows_ns]
        rows = [row for row in rows if row]
        ordered = sorted(cost for row in rows for cost in row)
        mean, sd, count = fmean(ordered), spread(ordered), len(ordered)
        error = sd / math.sqrt(count)
        if len(rows) > 1:
            between = sum((len(row) / count * (fmean(row) - mean)) ** 2 for row in rows)
            error = max(error, math.sqrt(between * len(rows) / (len(rows) - 1)))
        return cls(
            mean_ns=mean,
            quartile_ns=quantile(ordered, 0.25),
            median_ns=median(ordered),
            sd_ns=sd,
            count=count,
            disturbed=calls - count,
            slow=len(ready) - count,
            error_ns=error,
            single_ns=single,
        )

    def with_telling(self, rows_ns: Sequence[Sequence[float]]) -> Self:
        """The same, and what rows of more control calls tell: how many calls something disturbs.

        Those follow each other at the end of a case. They cost less than calls between the submission's.
        """
        costs_ns = [cost for row in rows_ns for cost in row if not math.isnan(cost)]
        long_ns = [cost for cost in costs_ns if cost > self.median_ns + self.single_ns]
        slow = sum(map(math.isfinite, long_ns))
        return replace(self, telling=len(costs_ns), telling_disturbed=len(long_ns), telling_slow=slow)

    @property
    def low_ns(self) -> float:
        """The lower end of the hand-over, which is subtracted from spans where claims do not count."""
        return max(min(self.mean_ns - _SIGMAS_LOW * self.error_ns, self.quartile_ns), 0.0)

    def excess_ns(self, sample: Sample) -> float:
        """The part of a span that neither claim nor mean hand-over explains."""
        return sample.outside_ns - sample.claim_ns - self.mean_ns

    def believes(self, sample: Sample) -> bool:
        """Whether one call was undisturbed and leaves no more unexplained than a control call may."""
        return not sample.waited and self.excess_ns(sample) <= self.single_ns + _SINGLE_SHARE * sample.claim_ns

    def unexplained_ns(self, excesses_ns: Sequence[float]) -> float:
        """The unexplained time of a case's calls: the mean, the median or the lower quartile, whichever is most.

        A few lowered claims show in the mean. Other processes lengthen some calls and some control calls, but not the
        lower quartile of either. Claims that are all lowered show there, however much the means differ. Half of them
        lowered show in the median, which is what a speed-up is made of.
        """
        quartile_ns = quantile(sorted(excesses_ns), 0.25) + self.mean_ns - self.quartile_ns
        return max(fmean(excesses_ns), median(excesses_ns) + self.mean_ns - self.median_ns, quartile_ns)

    def noise_ns(self, *, calls: int, sd_ns: float, claim_ns: float, controls: int | None = None) -> float:
        """How far the mean hand-over of so many honest calls may be from that of the control calls.

        `controls`: if there were so many like these.
        """
        return self.statistical_ns(calls=calls, sd_ns=sd_ns, controls=controls) + _COLD_NS + _COLD_SHARE * claim_ns

    def statistical_ns(self, *, calls: int, sd_ns: float, controls: int | None = None) -> float:
        """The part of the noise that more control calls would reduce; `controls`: see `noise_ns`."""
        error_ns = self.error_ns if controls is None else self.error_ns * math.sqrt(self.count / controls)
        return _SIGMAS * math.sqrt(min(sd_ns, 2 * self.sd_ns) ** 2 / calls + error_ns**2)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The times that a case's calls count as, and why."""

    counted: tuple[float, ...]
    #: audited: the claims count; measured: the judge's clock counts; claimed: the claims count, and nothing bounds
    #: them.
    timing: str
    #: How far the mean may be off; None: nothing is known.
    noise_ns: float | None = None
    #: By how much the spans exceed claims and hand-over; see `ControlCosts.unexplained_ns`.
    excess_ns: float | None = None
    hand_over_ns: float | None = None
    not_believed: int = 0
    #: The least that the median call must have taken.
    least_ns: float = 0.0
    is_forged: bool = False
    #: The mean by the judge's clock, if that counts.
    measured_ns: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the claims as a whole are lower than the judge's clock allows."""
        return self.noise_ns is not None and self.excess_ns is not None and self.excess_ns > self.noise_ns

    @property
    def interval(self) -> tuple[float, float] | None:
        """An interval for the mean, from the judge's clock."""
        if self.noise_ns is None or not self.counted:
            return None
        mean = fmean(self.counted)
        middle = mean if self.measured_ns is None else self.measured_ns
        return max(middle - self.noise_ns, 0.0), max(middle + self.noise_ns, mean)


def audit(samples: Sequence[Sample], *, controls_ns: Sequence[Sequence[float]] | None, tolerance: float) -> Audit:
    """Decide what the calls of a case count as.

    Args:
        samples: its timed calls.
        controls_ns: costs of the control calls, one sequence per row; None: none can be made.
        tolerance: a claim counts if it is bounded to within this part of it.
    """
    if not samples:
        return Audit(counted=(), timing="claimed")
    if controls_ns is not None or any(sample.whole for sample in samples):
        hand_over = ControlCosts.of(controls_ns or ())
        if hand_over is None or all(sample.whole for sample in samples):
            return _count_whole_spans(samples)
        return _compare_with_controls(samples, hand_over, tolerance)
    if any(sample.bound is None for sample in samples):
        return Audit(counted=tuple(sample.claimed_ns for sample in samples), timing="claimed")
    return _compare_with_calibration(samples, tolerance)


def _count_whole_spans(samples: Sequence[Sample]) -> Audit:
    """The hand-over is not known, so the whole spans count."""
    spans = tuple(float(max(sample.outside_ns, FLOOR_NS)) for sample in samples)
    return Audit(counted=spans, timing="measured", noise_ns=fmean(spans), not_believed=len(samples))


def _compare_with_controls(samples: Sequence[Sample], hand_over: ControlCosts, tolerance: float) -> Audit:
    believed = [not sample.whole and hand_over.believes(sample) for sample in samples]
    excesses = [hand_over.excess_ns(sample) for sample, good in zip(samples, believed, strict=True) if good]
    doubted = len(samples) - len(excesses)
    claim = _typical_claim_ns(samples)
    described_ns = _TENSOR_NS * max(sample.more_tensors for sample in samples)
    low_ns = max(hand_over.low_ns - described_ns, 0.0)
    measured = [max(sample.outside_ns - (0.0 if sample.whole else low_ns), FLOOR_NS) for sample in samples]
    noise = hand_over.noise_ns(calls=len(samples), sd_ns=spread(excesses), claim_ns=claim)
    noise += described_ns
    excess = hand_over.unexplained_ns(excesses or [hand_over.excess_ns(sample) for sample in samples])
    is_audited = noise <= tolerance * claim and excess <= noise and doubted <= _MOST_DOUBTED * len(samples)
    claimed = [sample.claimed_ns for sample in samples]
    if is_audited:
        counted = [claim if good else time for claim, good, time in zip(claimed, believed, measured, strict=True)]
    else:
        # Claims that are higher than the measured times need no proof; of some calls they could be, and of others less.
        higher = fmean(claimed) >= fmean(measured) and median(claimed) >= median(measured)
        counted = claimed if higher else measured
    least = [sample.outside_ns - hand_over.mean_ns - hand_over.single_ns for sample in samples]
    return Audit(
        counted=tuple(counted),
        timing="audited" if is_audited else "measured",
        noise_ns=noise,
        excess_ns=excess,
        hand_over_ns=hand_over.mean_ns,
        not_believed=doubted,
        least_ns=median(least),
        measured_ns=None if is_audited else fmean(sample.outside_ns for sample in samples) - hand_over.mean_ns,
        is_forged=_is_forged(samples, least, hand_over_ns=hand_over.mean_ns),
    )


def _typical_claim_ns(samples: Sequence[Sample]) -> float:
    """What noise is held against: mean or median of the claims, whichever is less. No few claims can raise both."""
    claims_ns = [sample.claimed_ns for sample in samples]
    return min(fmean(claims_ns), median(claims_ns))


def _compare_with_calibration(samples: Sequence[Sample], tolerance: float) -> Audit:
    bounds = [sample.bound for sample in samples if sample.bound is not None]
    pairs = list(zip(samples, bounds, strict=True))
    noise = median(bound.margin_ns for bound in bounds)
    # The whole span of a call beside which the worker could compute says nothing about its claim.
    gaps = [bound.kernel_ns - sample.claim_ns for sample, bound in pairs if sample.exclusive]
    believed = [sample.exclusive and sample.claim_ns >= bound.bound_ns and not bound.is_open for sample, bound in pairs]
    doubted = believed.count(False)
    excess = median(gaps) if gaps else None
    claim = _typical_claim_ns(samples)
    is_audited = (
        noise <= tolerance * claim
        and excess is not None
        and excess <= noise
        and doubted <= _MOST_DOUBTED * len(samples)
    )
    # Never less than the claim: the hand-over was measured before this case, not beside it.
    counted = (
        sample.claimed_ns if is_audited and good else max(sample.claimed_ns, bound.kernel_ns)
        for (sample, bound), good in zip(pairs, believed, strict=True)
    )
    hand_over_ns = median(sample.outside_ns - bound.kernel_ns for sample, bound in pairs)
    return Audit(
        counted=tuple(counted),
        timing="audited" if is_audited else "measured",
        noise_ns=noise,
        excess_ns=excess,
        hand_over_ns=hand_over_ns,
        not_believed=doubted,
        least_ns=median(bound.bound_ns for bound in bounds),
        is_forged=_is_forged(samples, [bound.bound_ns for bound in bounds], hand_over_ns=hand_over_ns),
    )


def _is_forged(samples: Sequence[Sample], least_ns: Sequence[float], *, hand_over_ns: float) -> bool:
    """Whether most calls claim far less than must have passed, not counting time that other processes had the cores.

    Nor copies of outputs: that they are in the spans is a precaution, and no evidence.
    """
    gap_ns = max(_FORGED_GAP_NS, _FORGED_HAND_OVERS * hand_over_ns)

    def is_forged_call(sample: Sample, least: float) -> bool:
        if sample.delayed_ns is None:
            return False
        least -= sample.delayed_ns + sample.copied_ns + (sample.late_ns if sample.with_copy else 0)
        return sample.claim_ns < _FORGED_PART * least and least - sample.claim_ns > gap_ns

    return sum(map(is_forged_call, samples, least_ns)) > _FORGED_SHARE * len(samples)


def details(samples: Sequence[Sample], result: Audit) -> Mapping[str, Any]:
    """Claims, spans and the verdict on them, for the report; times in nanoseconds."""
    return {
        "timing": result.timing,
        "claimed_median_ns": median(sample.claim_ns for sample in samples),
        "outside_median_ns": median(sample.outside_ns for sample in samples),
        "hand_over_ns": result.hand_over_ns,
        "excess_ns": result.excess_ns,
        "noise_ns": result.noise_ns,
        "not_believed": result.not_believed,
        "not_exclusive": sum(not sample.exclusive for sample in samples),
        "contradicted": result.contradicted,
        "delayed_ns": sum(sample.delayed_ns or 0 for sample in samples),
    }
