"""What two rows of timed calls say: medians, their ratio, and a 95 % interval of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from tasks.harness.judge.audit import Audit, Sample, audit

_RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Row:
    """The timed calls of one side, and the control calls beside them."""

    samples: Sequence[Sample]
    controls_ns: Sequence[Sequence[float]] | None

    def joined(self, other: Row) -> Row:
        """Both rows as one."""
        if self.controls_ns is None or other.controls_ns is None:
            controls = None
        else:
            controls = [*self.controls_ns, *other.controls_ns]
        return Row(samples=[*self.samples, *other.samples], controls_ns=controls)


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


def speedup_of(reference: Row, candidate: Row, *, tolerance: float) -> Speedup:
    """Compare two rows. Where one side's claims count and the other's do not, both count as measured.

    Measured times hold what the hand-over may have cost less. So a row of claims beside a measured row would make the
    measured side seem slower than it is. Where control calls do not say what the hand-over costs, on one side or both,
    the whole spans of both count: a claim that nothing bounds never does.
    """
    if reference.controls_ns is None or candidate.controls_ns is None:
        reference, candidate = replace(reference, controls_ns=()), replace(candidate, controls_ns=())
    ours, theirs = _audited(reference, tolerance), _audited(candidate, tolerance)
    forged = theirs.is_forged
    if ours.timing != theirs.timing:
        ours, theirs = _audited(reference, 0.0), _audited(candidate, 0.0)
    one, other = median(ours.counted), median(theirs.counted)
    low, high = _interval(ours.counted, theirs.counted)
    # What the hand-over may be off, where it is in the times.
    noise = [0.0 if row.timing == "audited" else row.noise_ns or 0.0 for row in (ours, theirs)]
    low = min(low, max(one - noise[0], 0.0) / (other + noise[1]))
    high = max(high, (one + noise[0]) / max(other - noise[1], 1.0))
    assurances = ("claimed", "measured", "audited")
    return Speedup(
        reference_ns=one,
        candidate_ns=other,
        ratio=one / other,
        low=low,
        high=high,
        timing=min(ours.timing, theirs.timing, key=assurances.index),
        is_forged=forged,
    )


def _audited(row: Row, tolerance: float) -> Audit:
    return audit(row.samples, controls_ns=row.controls_ns, tolerance=tolerance)


def _interval(reference: Sequence[float], candidate: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the ratio of medians, by resampling both rows; the same resamples for the same rows."""
    generator = np.random.default_rng(1)
    medians = [
        np.median(generator.choice(np.asarray(row), size=(_RESAMPLES, len(row))), axis=1)
        for row in (reference, candidate)
    ]
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    return float(low), float(high)
