"""How far a worker's claimed time is believed: the judge's outside bound and its calibration; pure.

The judge clocks every call from outside: from the release of its inputs to the arrival of "done". That span holds the
kernel and a hand-over (messages, mapping the inputs, copying the outputs). The hand-over is calibrated with known
kernels before any byte of a submission is in the worker. What the outside span leaves after the hand-over and a margin
is the bound: a claim below it is not believed. Called by the judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median, median_low
from typing import Any

from .stats import quantile

#: No Python callable takes tensors and returns one faster; keeps a forged claim from driving a mean to nothing.
FLOOR_NS = 1_000
#: A claim is only called a forgery when this much real time is missing ...
FORGERY_GAP_NS = 1_000_000
#: ... and less than this fraction of the bound was claimed ...
FORGERY_FRACTION = 0.5
#: ... in more than this fraction of the calls, beside all the time in which others had the cores.
FORGERY_SHARE = 0.5
#: The calls that a case's claims are compared by, as a quantile, and the part of it allowed for beside its margin; also
#: for single calls so long that the judge may have slept.
CALM = 0.25
CALM_SLACK = 0.02
#: What a hand-over at the gate may differ by from call to call, beside what the calibration shows.
GATE_FLOOR_NS = 2_000
#: Claims that are all a little too low show beside known calls of the same moments, at the same quantile; what is
#: allowed for there, also as a part of the claims, and how many known calls it takes.
SUSPICION_NS = 200
SUSPICION_SLACK = 0.01
VOLUME_SLACK = 1.0
FEWEST_KNOWN = 15
#: After how many calls of a case known ones are made, and then after every so many more. Three rows in fifty calls, as
#: the middle one counts; a case that is settled after twenty has two.
_KNOWN_AT, _KNOWN_EVERY = (5, 25, 45), 40
#: A case is audited if its bound reaches this fraction of the reported time: a claim a fifth too low would be noticed.
AUDITED_SHARE = 0.8
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
class Costs:
    """One way of handing over, as a function of what is handed over."""

    #: A kernel that returns at once: the judge is still spinning when it is done.
    short: HandOver
    #: A kernel of `long_kernel_ns`: the judge sleeps and has to be woken up.
    long: HandOver
    long_kernel_ns: float
    per_tensor_ns: float
    per_input_byte_ns: float
    per_output_byte_ns: float
    #: For each tensor of an output that has several.
    per_part_ns: float = 0.0
    #: Spread that the calibration cannot see: another core's interrupts, a colder cache.
    floor_ns: float = 10_000

    def bound(
        self, *, outside_ns: int, tensors: int, input_bytes: int, output_bytes: int, parts: int = 1, copy_ns: int = 0
    ) -> Bound:
        """What a call of this outside span must at least have taken.

        Args:
            outside_ns: what passed on the judge's clock.
            tensors: how many were handed over.
            input_bytes: of all of them.
            output_bytes: copied back.
            parts: tensors in the output.
            copy_ns: the part of the span in which inputs were copied, and could be read as they came.
        """
        base = self.short if outside_ns < self.short.median_ns + self.long_kernel_ns / 2 else self.long
        volume = (
            self.per_tensor_ns * tensors
            + self.per_input_byte_ns * input_bytes
            + self.per_output_byte_ns * output_bytes
            + (self.per_part_ns * parts if parts > 1 else 0.0)
        )
        # Moving bytes varies by half under memory pressure; the fixed part by what the calibration itself showed.
        spread = min(4 * (base.p75_ns - base.median_ns), _MARGIN_SPREAD_NS)
        # If it slept at all: a core that has slept for longer than in the calibration wakes up later.
        slept = CALM_SLACK * outside_ns if base is self.long else 0.0
        margin = self.floor_ns + spread + 0.5 * volume + slept
        rest = outside_ns - base.median_ns - volume
        return Bound(
            kernel_ns=max(rest, 0.0),
            margin_ns=margin,
            bound_ns=max(rest - margin, 0.0),
            calm_ns=outside_ns - base.p25_ns - volume,
            calm_margin_ns=self.floor_ns + base.median_ns - base.p25_ns + 0.5 * volume + copy_ns,
            volume_ns=volume,
        )

    def as_details(self) -> dict[str, float]:
        """For the report."""
        return {
            "short_ns": self.short.median_ns,
            "short_p75_ns": self.short.p75_ns,
            "long_ns": self.long.median_ns,
            "long_p75_ns": self.long.p75_ns,
            "per_tensor_ns": self.per_tensor_ns,
            "per_part_ns": self.per_part_ns,
            "per_input_mib_ns": self.per_input_byte_ns * (1 << 20),
            "per_output_mib_ns": self.per_output_byte_ns * (1 << 20),
        }


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What handing over costs on this host, now."""

    message: Costs
    #: None: no call goes through the gate.
    gate: Costs | None = None

    def costs(self, *, gated: bool) -> Costs:
        """Those of a call that went through the gate, or did not."""
        return self.gate if gated and self.gate is not None else self.message

    def as_details(self) -> dict[str, dict[str, float]]:
        """For the report."""
        return {"message": self.message.as_details()} | ({} if self.gate is None else {"gate": self.gate.as_details()})


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the judge's own clock says about one call."""

    #: Outside span less the expected hand-over: the judge's own estimate of the kernel's time.
    kernel_ns: float
    margin_ns: float
    #: The least the kernel can have taken.
    bound_ns: float
    #: The same estimate where nothing gets in the way, and by how much it may be wrong for the calm ones of many calls.
    calm_ns: float = 0.0
    calm_margin_ns: float = 0.0
    #: What of the hand-over is for the bytes.
    volume_ns: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One timed call. `bound` is None where the claim is not audited."""

    claim_ns: int
    outside_ns: int
    bound: Bound | None
    #: How long judge and worker were ready to run and did not; None where the kernel does not tell.
    delayed_ns: int | None = None
    #: Whether it began and ended at the gate.
    gated: bool = False
    #: On a device: the host's work is in the outside span.
    by_host: bool = False

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
        """Whether far more time passed than was claimed, and nobody else had the cores meanwhile."""
        if self.bound is None or self.delayed_ns is None:
            return False
        least_ns = self.bound.bound_ns - self.delayed_ns
        return self.claim_ns < FORGERY_FRACTION * least_ns and least_ns - self.claim_ns > FORGERY_GAP_NS


@dataclass(frozen=True, kw_only=True)
class Times:
    """What the calls of a case count as, in nanoseconds."""

    counted: tuple[float, ...]
    #: The claims, as a whole, are lower than the judge's clock allows: its own estimates count.
    contradicted: bool
    #: The least that three in four calls can have taken; None where claims are not audited.
    bound_ns: float | None


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """Whether all claims of a case are a little too low."""

    #: By how many ns the calls went on longer, beside their claims, than known ones, beyond what is allowed for; more
    #: than 0: all the claims are too low. None: nobody can say.
    excess_ns: float | None
    #: What known calls of the same moments cost beside their own time.
    known_ns: float | None = None

    @property
    def founded(self) -> bool | None:
        """Whether the judge's own estimates count; None: nobody can say."""
        return None if self.excess_ns is None else self.excess_ns > 0

    def estimates(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples with the judge's estimates by the known calls, which are nearer than its calibration."""
        if self.known_ns is None or not self.founded:
            return samples
        return [
            sample
            if sample.bound is None
            else replace(sample, bound=replace(sample.bound, kernel_ns=max(sample.outside_ns - self.known_ns, 0.0)))
            for sample in samples
        ]

    @property
    def details(self) -> dict[str, Any]:
        """For the report."""
        return {"excess_ns": self.excess_ns, "known_ns": self.known_ns, "suspected": bool(self.founded)}


@dataclass(frozen=True, kw_only=True)
class KnownCalls:
    """Known calls that were made in a row."""

    #: How many calls of the case had been timed before.
    after: int
    #: What each cost beside its own time, in ns.
    costs_ns: Sequence[float]


def known_due(count: int) -> bool:
    """Whether known calls are made after so many calls of a case."""
    return count in _KNOWN_AT or (count > _KNOWN_AT[-1] and (count - _KNOWN_AT[-1]) % _KNOWN_EVERY == 0)


def suspect(samples: Sequence[Sample], known: Sequence[KnownCalls]) -> Suspicion:
    """Hold calls against known ones that were made between them and moved as many bytes.

    Sharper than any single call can be judged: what differs from call to call, the kernel's own time included, is in
    span and claim alike, and what differs from minute to minute (other people's work beside this machine, above all) is
    in both kinds of call. Their calm quarters differ by tenths of a microsecond where the claims are true. Each row of
    known calls is held against the calls around it; the middle row counts, so that a machine which changes in between
    is seen in one comparison and not in all.

    Args:
        samples: the timed calls of a case.
        known: rows of known calls, in order.
    """
    rows = [row for row in known if row.costs_ns]
    if sum(len(row.costs_ns) for row in rows) < FEWEST_KNOWN or not all(sample.gated for sample in samples):
        return Suspicion(excess_ns=None)
    ends = [(row.after + later.after + 1) // 2 for row, later in pairwise(rows)]
    found: list[tuple[float, float]] = []
    for row, start, end in zip(rows, [0, *ends], [*ends, len(samples)], strict=True):
        beside = sorted(sample.outside_ns - sample.claim_ns for sample in samples[start:end])
        if beside:
            cost_ns = quantile(sorted(row.costs_ns), CALM)
            found.append((quantile(beside, CALM) - cost_ns, cost_ns))
    if not found:
        return Suspicion(excess_ns=None)
    # Known kernels leave the caches as they were; what moves bytes back from colder ones takes longer.
    volume = VOLUME_SLACK * median(sample.bound.volume_ns if sample.bound else 0.0 for sample in samples)
    slack = SUSPICION_NS + volume + SUSPICION_SLACK * median(sample.claim_ns for sample in samples)
    return Suspicion(
        excess_ns=median_low(more for more, _ in found) - slack, known_ns=median(cost_ns for _, cost_ns in found)
    )


def times(samples: Sequence[Sample], *, suspected: bool | None = None) -> Times:
    """What the calls of a case count as; `suspected`: whether the judge's estimates count, where known calls say that.

    One call's outside span is as uncertain as one interrupt. The lower quartile of many is not, on a loaded machine
    neither, so that claims which are all a little too low show there, where each of them passes.
    """
    bounds = [sample.bound for sample in samples if sample.bound is not None]
    if not samples or len(bounds) != len(samples):
        return Times(counted=tuple(sample.time_ns for sample in samples), contradicted=False, bound_ns=None)
    margin_ns = median(bound.calm_margin_ns for bound in bounds)
    bound_ns = max((1 - CALM_SLACK) * quantile(sorted(bound.calm_ns for bound in bounds), CALM) - margin_ns, 0.0)
    contradicted = suspected
    if contradicted is None:
        # A calibration is as good as the moment it was made in; nothing better is there.
        contradicted = quantile(sorted(sample.claim_ns for sample in samples), CALM) < bound_ns
    counted = (
        float(max(bound.kernel_ns if contradicted else sample.time_ns, FLOOR_NS))
        for sample, bound in zip(samples, bounds, strict=True)
    )
    return Times(counted=tuple(counted), contradicted=contradicted, bound_ns=bound_ns)


def tight(found: Times) -> bool:
    """Whether the bound of a case is so close to its reported time that the time stands on the judge's clock."""
    return found.bound_ns is not None and found.bound_ns >= AUDITED_SHARE * median(found.counted)


def forged(samples: Sequence[Sample]) -> bool:
    """Whether the claims of a whole case are forged: most of them, and by far (see the constants)."""
    return bool(samples) and sum(sample.looks_forged for sample in samples) > FORGERY_SHARE * len(samples)


def audit_details(samples: Sequence[Sample], found: Times) -> Mapping[str, Any]:
    """Claims, outside spans and bounds of one case, for the report."""
    audited = [sample for sample in samples if sample.bound is not None]
    details: dict[str, Any] = {
        "claimed_median_ns": median(sample.claim_ns for sample in samples),
        "outside_median_ns": median(sample.outside_ns for sample in samples),
        "not_believed": sum(not sample.believed for sample in samples),
        "delayed_ns": sum(sample.delayed_ns or 0 for sample in samples),
    }
    if audited:
        bounds = [sample.bound for sample in audited if sample.bound is not None]
        details |= {
            "judge_median_ns": median(bound.kernel_ns for bound in bounds),
            "bound_median_ns": median(bound.bound_ns for bound in bounds),
            "margin_median_ns": median(bound.margin_ns for bound in bounds),
            "bound_calm_ns": found.bound_ns,
            "contradicted": found.contradicted,
        }
    return details
