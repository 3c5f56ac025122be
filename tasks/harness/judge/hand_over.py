"""The result of a calibration: the hand-over of a call, and the least time that its kernel can have taken. Pure.

The judge measures a span for every call: from the release of the inputs to the arrival of "done"; on a device between
two events of its own (`device_calls`). It holds the kernel and a hand-over. Kernels of known time measure the
hand-over before any byte of a submission is in a worker (`calibration`). This bounds devices and tasks of several
ranks. A single worker on the CPU is compared with control calls instead (`audit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: A judge that has slept may be late by this part of the span.
_SLEPT_SHARE = 0.02
#: The most that the spread counts, so that a calibration under load does not let everything pass.
_MARGIN_SPREAD_NS = 500_000


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """The cost of calls of one calibration kernel beside its own time."""

    #: The lower quartile: the cost of an undisturbed hand-over.
    p25_ns: float
    median_ns: float
    #: The upper quartile. Higher quantiles of a few samples would be single interrupts.
    p75_ns: float

    @classmethod
    def of(cls, samples_ns: Sequence[float]) -> HandOver:
        """Summarise span less claim of trusted calls."""
        ordered = sorted(samples_ns)
        quarter, three_quarters = (ordered[int(share * len(ordered))] for share in (0.25, 0.75))
        return cls(p25_ns=quarter, median_ns=median(ordered), p75_ns=three_quarters)

    @property
    def spread_ns(self) -> float:
        """What lies between the quartiles."""
        return self.p75_ns - self.p25_ns


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost of one way to hand over, as a function of tensors and bytes."""

    #: For a kernel that returns at once: all that waits is still spinning.
    short: HandOver
    #: For a kernel of `long_kernel_ns`: all but the judge sleeps and must be woken up.
    long: HandOver
    long_kernel_ns: float
    per_tensor_ns: float
    per_input_byte_ns: float
    per_output_byte_ns: float
    #: For each tensor of an output that has several.
    per_part_ns: float = 0.0
    #: Spread that the calibration cannot show: interrupts of other cores, colder caches.
    floor_ns: float = 10_000

    def bound(
        self,
        *,
        outside_ns: int,
        tensors: int,
        input_bytes: int,
        output_bytes: int,
        parts: int = 1,
        skippable: bool = False,
    ) -> Bound:
        """The least time that a call with this span must have taken.

        `output_bytes`: that were copied back; `parts`: tensors in the output; `skippable`: the worker does the work of
        the hand-over itself, and may have left it out.
        """
        base = self.short if outside_ns < self.short.median_ns + self.long_kernel_ns / 2 else self.long
        volume = (
            self.per_tensor_ns * tensors
            + self.per_input_byte_ns * input_bytes
            + self.per_output_byte_ns * output_bytes
            + (self.per_part_ns * parts if parts > 1 else 0.0)
        )
        # The cost of bytes varies by half under memory pressure, the fixed part by the spread of the calibration.
        spread = min(4 * (base.p75_ns - base.median_ns), _MARGIN_SPREAD_NS)
        # A core that sleeps longer than in the calibration wakes up later.
        slept = _SLEPT_SHARE * outside_ns if base is self.long else 0.0
        margin = self.floor_ns + spread + 0.5 * volume + slept
        rest = outside_ns - base.median_ns - volume
        if skippable:
            # Nothing can be subtracted that the worker may have left out.
            margin += base.median_ns + volume
            return Bound(kernel_ns=float(outside_ns), margin_ns=margin, bound_ns=max(rest - margin, 0.0))
        return Bound(kernel_ns=max(rest, 0.0), margin_ns=margin, bound_ns=max(rest - margin, 0.0))

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
class DeviceCosts:
    """The cost of a call on a device that the judge's own work there marks: nearly the same for every call.

    A kernel that leaves much new data in the device's caches makes the change to the judge's process longer, by 2 to 5
    microseconds on an H100. How much data that is, the judge knows of the output alone.
    """

    hand_over: HandOver
    #: How much more a call costs whose output fills `full_bytes` or more.
    dirty_ns: float = 0.0
    full_bytes: int = 2 << 20
    #: What the calibration cannot show.
    floor_ns: float = 500

    def bound(self, *, outside_ns: int, output_bytes: int, exclusive: bool) -> Bound:
        """The least time that a call with this span, by the judge's events, must have taken.

        `exclusive`: whether the worker used nothing but its stream. Else it could work during the whole span.
        """
        spread = min(self.hand_over.spread_ns, _MARGIN_SPREAD_NS / 4)
        middle = self.hand_over.median_ns + self.dirty_ns * min(output_bytes / self.full_bytes, 1.0)
        margin = self.floor_ns + self.dirty_ns + 2 * spread
        rest = max(outside_ns - middle, 0.0)
        # A single call differs more than the middle of many.
        least = max(rest - margin - 4 * spread, 0.0)
        if not exclusive:
            return Bound(kernel_ns=float(outside_ns), margin_ns=margin + middle, bound_ns=least)
        return Bound(kernel_ns=rest, margin_ns=margin, bound_ns=least)

    def as_details(self) -> dict[str, float]:
        """For the report."""
        middle = self.hand_over
        return {
            "p25_ns": middle.p25_ns,
            "median_ns": middle.median_ns,
            "p75_ns": middle.p75_ns,
            "dirty_ns": self.dirty_ns,
        }


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The cost of a hand-over on this host, now."""

    #: Of calls by message; None: not measured yet.
    message: Costs | None
    #: Of calls that the judge's own work on a device marks; None: no call is made so.
    device: DeviceCosts | None = None

    def as_details(self) -> dict[str, dict[str, float]]:
        """For the report."""
        ways = {"message": self.message, "device": self.device}
        return {name: costs.as_details() for name, costs in ways.items() if costs is not None}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the judge's clock says about one call."""

    #: Span less the expected hand-over: the judge's estimate of the kernel's time.
    kernel_ns: float
    margin_ns: float
    #: The least time that the kernel can have taken.
    bound_ns: float

    @property
    def is_open(self) -> bool:
        """Whether any claim would keep it."""
        return self.margin_ns >= self.kernel_ns

    @classmethod
    def unknown(cls, outside_ns: int) -> Bound:
        """Of a call whose hand-over is not known: the whole span may be the kernel, or nothing of it."""
        return cls(kernel_ns=float(outside_ns), margin_ns=float(outside_ns), bound_ns=0.0)
