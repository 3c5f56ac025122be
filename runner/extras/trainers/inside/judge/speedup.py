"""What two rows of timed calls say: medians, their ratio, and a 95 % interval of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, pstdev

import numpy as np

from tasks.harness.judge.audit import Audit, Sample, audit
from tasks.harness.judge.stopping import student_t95

_RESAMPLES = 1000
#: What a time can be worth, the least first.
_ASSURANCES = ("claimed", "measured", "audited")


@dataclass(frozen=True, kw_only=True)
class Row:
    """The timed calls of one side, and the control calls beside them."""

    samples: Sequence[Sample]
    controls_ns: Sequence[Sequence[float]] | None
    #: What the harness's own code in a call takes at most, which a candidate could leave out.
    skippable_ns: float = 0.0

    def joined(self, other: Row) -> Row:
        """Both rows as one."""
        if self.controls_ns is None or other.controls_ns is None:
            controls = None
        else:
            controls = [*self.controls_ns, *other.controls_ns]
        return replace(self, samples=[*self.samples, *other.samples], controls_ns=controls)

    @property
    def is_bounded(self) -> bool:
        """Whether a calibration bounds every call, as on a device."""
        return all(sample.bound is not None for sample in self.samples)


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """How much faster a candidate is."""

    reference_ns: float
    candidate_ns: float
    ratio: float
    low: float
    high: float
    #: The lesser timing assurance of the two.
    timing: str
    is_forged: bool
    #: The times that count, of the reference and of the candidate.
    counted_ns: tuple[float, ...]
    candidate_counted_ns: tuple[float, ...]

    def facts(self) -> dict[str, float]:
        """For the result."""
        return {
            "reference_ns": round(self.reference_ns, 1),
            "speedup": round(self.ratio, 4),
            "speedup_low": round(self.low, 4),
            "speedup_high": round(self.high, 4),
        }


def speedup_of(reference: Row, candidate: Row, *, tolerance: float) -> Speedup:
    """Compare two rows. Where one side's claims count and the other's do not, both count as measured.

    Measured times hold what the hand-over may have cost less. So a row of claims beside a measured row would make the
    measured side seem slower than it is. Where neither control calls nor a calibration say what the hand-over costs, on
    one side or both, the whole spans of both count: a claim that nothing bounds never does.

    The reference's calls are from just before and after the candidate's. A claim counts if it is bounded to within
    `tolerance`, a part of it.
    """
    if any(row.controls_ns is None and not row.is_bounded for row in (reference, candidate)):
        reference, candidate = replace(reference, controls_ns=()), replace(candidate, controls_ns=())
    ours, theirs = _audited(reference, tolerance), _audited(candidate, tolerance)
    forged = theirs.is_forged
    if ours.timing != theirs.timing:
        ours, theirs = _audited(reference, 0.0), _audited(candidate, 0.0)
    one, other = median(ours.counted), median(theirs.counted)
    # Any part of the time for which a call waited for a core may be in its time, as the host's doing. A candidate can
    # make itself wait, and gain no more by that than a copy of the reference has: an interval that holds 1.
    least, theirs_least = _without_waits(reference, ours), _without_waits(candidate, theirs)
    drift = math.exp(_drift(least, theirs_least))
    low = min(_interval(least, theirs.counted)[0], median(least) / other / drift)
    high = max(_interval(ours.counted, theirs_least)[1], one / median(theirs_least) * drift)
    # What the hand-over may be off, where it is in the times.
    noise = _noise(ours), _noise(theirs)
    low = min(low, max(one - noise[0], 0.0) / (other + noise[1] + candidate.skippable_ns))
    high = max(high, (one + noise[0]) / max(other - noise[1], 1.0))
    return Speedup(
        reference_ns=one,
        candidate_ns=other,
        ratio=one / other,
        low=low,
        high=high,
        timing=min(ours.timing, theirs.timing, key=_ASSURANCES.index),
        is_forged=forged,
        counted_ns=ours.counted,
        candidate_counted_ns=theirs.counted,
    )


def stats_of(times_ns: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, least, most and number."""
    return {
        "mean_ns": round(fmean(times_ns), 1),
        "std_ns": round(pstdev(times_ns), 1),
        "min_ns": round(min(times_ns), 1),
        "max_ns": round(max(times_ns), 1),
        "calls": len(times_ns),
    }


def _noise(result: Audit) -> float:
    return 0.0 if result.timing == "audited" else result.noise_ns or 0.0


def _without_waits(row: Row, result: Audit) -> list[float]:
    """The times that count, less the time for which judge and worker waited for a core; none is below its claim."""
    pairs = zip(result.counted, row.samples, strict=True)
    return [max(time - (sample.delayed_ns or 0), min(time, sample.claimed_ns)) for time, sample in pairs]


def _drift(*rows: Sequence[float]) -> float:
    """How far the logarithm of the ratio may be off with 95 %, by how far the halves of each row lie apart.

    The machine's load, clocks and caches change from one row to the next, so calls of one row are alike, which no
    resampling of calls shows. The halves of the reference's calls are from before and after the candidate's.
    """
    halves = [(row[: len(row) // 2], row[len(row) // 2 :]) for row in rows if len(row) > 1]
    gaps = [math.log(median(first) / median(second)) for first, second in halves]
    # The four medians have one variance: half of it is that of each side's mean, all of it that of their difference.
    return student_t95(2) * math.hypot(*gaps) / 2


def _audited(row: Row, tolerance: float) -> Audit:
    return audit(row.samples, controls_ns=row.controls_ns, tolerance=tolerance)


def _interval(reference: Sequence[float], candidate: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the ratio of medians if calls differ by chance alone, by resampling both rows.

    The same rows have the same resamples.
    """
    generator = np.random.default_rng(1)
    medians = [
        np.median(generator.choice(np.asarray(row), size=(_RESAMPLES, len(row))), axis=1)
        for row in (reference, candidate)
    ]
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    return float(low), float(high)
