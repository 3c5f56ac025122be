"""What a calibration says of a call: its hand-over, and the least that its kernel can have taken; pure.

The judge clocks every call from outside, from the release of the inputs to the arrival of "done". That span holds the
kernel and a hand-over (messages, mapping the inputs, copying the outputs). Known kernels measure the hand-over before
any byte of a submission is in a worker (`calibration`). Devices and tasks of several ranks are bounded so; a single
worker on the CPU is held against control calls instead (`audit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: Part of a span by which a judge that has slept may be late.
_SLEPT_SHARE = 0.02
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

    def bound(self, *, outside_ns: int, tensors: int, input_bytes: int, output_bytes: int, parts: int = 1) -> Bound:
        """What a call of this outside span must at least have taken.

        Args:
            outside_ns: what passed on the judge's clock.
            tensors: how many were handed over.
            input_bytes: of all of them.
            output_bytes: copied back.
            parts: tensors in the output.
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
        slept = _SLEPT_SHARE * outside_ns if base is self.long else 0.0
        margin = self.floor_ns + spread + 0.5 * volume + slept
        rest = outside_ns - base.median_ns - volume
        return Bound(
            kernel_ns=max(rest, 0.0),
            margin_ns=margin,
            bound_ns=max(rest - margin, 0.0),
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
    flags: Costs | None = None

    def costs(self, *, by_flags: bool) -> Costs:
        """Those of a call that went through the gate, or did not."""
        return self.flags if by_flags and self.flags is not None else self.message

    def as_details(self) -> dict[str, dict[str, float]]:
        """For the report."""
        return {"message": self.message.as_details()} | (
            {} if self.flags is None else {"gate": self.flags.as_details()}
        )


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the judge's own clock says about one call."""

    #: Outside span less the expected hand-over: the judge's own estimate of the kernel's time.
    kernel_ns: float
    margin_ns: float
    #: The least the kernel can have taken.
    bound_ns: float
