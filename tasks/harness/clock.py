"""How far a worker's claimed time is believed: the judge's outside bound and its calibration; pure.

The judge clocks every call from outside: from the release of its inputs to the arrival of "done". That span holds the
kernel and a hand-over (messages, mapping the inputs, copying the outputs). The hand-over is calibrated with known
kernels before any byte of a submission is in the worker. What the outside span leaves after the hand-over and a margin
is the bound: a claim below it is not believed. Called by the judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

#: No Python callable takes tensors and returns one faster; keeps a forged claim from driving a mean to nothing.
FLOOR_NS = 1_000
#: A claim is only called a forgery when this much real time is missing ...
FORGERY_GAP_NS = 1_000_000
#: ... and less than this fraction of the bound was claimed ...
FORGERY_FRACTION = 0.5
#: ... in at least this fraction of the calls: one call may have been preempted, nine in ten were not.
FORGERY_SHARE = 0.9
#: A case is audited if its bound reaches this fraction of the reported time: a claim a fifth too low would be noticed.
AUDITED_SHARE = 0.8
#: Spread that the calibration cannot see: another core's interrupts, a colder cache.
_MARGIN_FLOOR_NS = 10_000
#: A calibration under load must not let everything pass: spread counts up to here.
_MARGIN_SPREAD_NS = 500_000


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """What one kind of known kernel cost beside its own time."""

    #: One in four calls cost no more: what the hand-over costs when nothing gets in its way.
    p25_ns: float
    median_ns: float
    #: Three in four calls cost no more. Higher quantiles of a few samples would be single interrupts.
    p75_ns: float

    @classmethod
    def of(cls, samples_ns: Sequence[float]) -> HandOver:
        """Summarise (outside - claim) of trusted calls."""
        ordered = sorted(samples_ns)
        quarter, three_quarters = (ordered[int(share * len(ordered))] for share in (0.25, 0.75))
        return cls(p25_ns=quarter, median_ns=median(ordered), p75_ns=three_quarters)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The hand-over as a function of what is handed over."""

    #: A kernel that returns at once: the judge is still spinning when it is done.
    short: HandOver
    #: A kernel of `long_kernel_ns`: the judge sleeps and has to be woken up.
    long: HandOver
    long_kernel_ns: float
    per_tensor_ns: float
    per_input_byte_ns: float
    per_output_byte_ns: float

    def bound(self, *, outside_ns: int, tensors: int, input_bytes: int, output_bytes: int) -> Bound:
        """What a call of this outside span must at least have taken."""
        base = self.short if outside_ns < self.short.median_ns + self.long_kernel_ns / 2 else self.long
        volume = (
            self.per_tensor_ns * tensors + self.per_input_byte_ns * input_bytes + self.per_output_byte_ns * output_bytes
        )
        # Moving bytes varies by half under memory pressure; the fixed part by what the calibration itself showed.
        spread = min(4 * (base.p75_ns - base.median_ns), _MARGIN_SPREAD_NS)
        margin = _MARGIN_FLOOR_NS + spread + 0.5 * volume
        rest = outside_ns - base.median_ns - volume
        return Bound(kernel_ns=max(rest, 0.0), margin_ns=margin, bound_ns=max(rest - margin, 0.0))

    def as_details(self) -> dict[str, float]:
        """For the report."""
        return {
            "short_ns": self.short.median_ns,
            "short_p75_ns": self.short.p75_ns,
            "long_ns": self.long.median_ns,
            "long_p75_ns": self.long.p75_ns,
            "per_tensor_ns": self.per_tensor_ns,
            "per_input_mib_ns": self.per_input_byte_ns * (1 << 20),
            "per_output_mib_ns": self.per_output_byte_ns * (1 << 20),
        }


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the judge's own clock says about one call."""

    #: Outside span less the expected hand-over: the judge's own estimate of the kernel's time.
    kernel_ns: float
    margin_ns: float
    #: The least the kernel can have taken.
    bound_ns: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One timed call. `bound` is None where the claim is not audited."""

    claim_ns: int
    outside_ns: int
    bound: Bound | None

    @property
    def believed(self) -> bool:
        """Whether the outside clock agrees with the claim."""
        return self.bound is None or self.claim_ns >= self.bound.bound_ns

    @property
    def time_ns(self) -> float:
        """The time that counts: the claim, or the judge's own estimate where the claim is not believed.

        Never more than what passed outside: only a forged claim can be longer.
        """
        counted = self.claim_ns if self.bound is None or self.believed else self.bound.kernel_ns
        return float(max(min(counted, self.outside_ns), FLOOR_NS))

    @property
    def looks_forged(self) -> bool:
        """Whether far more time passed than was claimed."""
        return (
            self.bound is not None
            and self.claim_ns < FORGERY_FRACTION * self.bound.bound_ns
            and self.bound.bound_ns - self.claim_ns > FORGERY_GAP_NS
        )


def tight(samples: Sequence[Sample]) -> bool:
    """Whether the bound of a case is so close to its reported time that the time stands on the judge's clock."""
    bounds = [sample.bound.bound_ns for sample in samples if sample.bound is not None]
    return len(bounds) == len(samples) > 0 and median(bounds) >= AUDITED_SHARE * median(s.time_ns for s in samples)


def forged(samples: Sequence[Sample]) -> bool:
    """Whether the claims of a whole case are forged: nearly every one, and by far (see the constants)."""
    return bool(samples) and sum(sample.looks_forged for sample in samples) >= FORGERY_SHARE * len(samples)


def audit_details(samples: Sequence[Sample], *, repeated: int) -> Mapping[str, Any]:
    """Claims, outside spans and bounds of one case, for the report."""
    audited = [sample for sample in samples if sample.bound is not None]
    details: dict[str, Any] = {
        "claimed_median_ns": median(sample.claim_ns for sample in samples),
        "outside_median_ns": median(sample.outside_ns for sample in samples),
        "not_believed": sum(not sample.believed for sample in samples),
        "repeated": repeated,
    }
    if audited:
        bounds = [sample.bound for sample in audited if sample.bound is not None]
        details |= {
            "judge_median_ns": median(bound.kernel_ns for bound in bounds),
            "bound_median_ns": median(bound.bound_ns for bound in bounds),
            "margin_median_ns": median(bound.margin_ns for bound in bounds),
        }
    return details
