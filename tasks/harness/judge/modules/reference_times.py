"""Times of a reference that earlier groups on the same device have left: what they are, and how they travel. Pure.

Without torch: the runner keeps them between groups (`runner.evaluation.reference_times`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.protocol import StepResult

#: So many of the newest times are kept.
MOST_TIMES = 200
#: What a time of a reference can be worth.
ASSURANCES = ("claimed", "measured", "audited")
#: A year, in nanoseconds: no call takes longer.
_MOST_NS = 3.2e16
#: By mode of the module: as made, and eval.
MODES = ("made", "eval")


@dataclass(frozen=True, kw_only=True)
class ReferenceTimes:
    """Times of a reference, in nanoseconds, that count alike."""

    counted_ns: tuple[float, ...]
    timing: str
    #: How far they may all be off.
    noise_ns: float = 0.0

    def to_message(self) -> dict[str, Any]:
        """As a JSON object."""
        times = [round(time_ns, 1) for time_ns in self.counted_ns]
        return {"counted_ns": times, "timing": self.timing, "noise_ns": round(self.noise_ns, 1)}


def from_message(message: object) -> dict[str, ReferenceTimes]:
    """Read times by mode.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(message, Mapping) or not set(message) <= set(MODES):
        raise ValueError(f"times of a reference are no object with the keys {' and '.join(MODES)}")
    return {mode: _read(times) for mode, times in message.items()}


def last_reported(steps: Iterable[StepResult]) -> object:
    """The message in the last of a judge's steps that has one; each holds the times of the ones before. None: no step.

    What a judge reports is not checked here; see `from_message`.
    """
    reported = [
        step.judged.details["reference_times"]
        for step in steps
        if step.judged is not None and "reference_times" in step.judged.details
    ]
    return reported[-1] if reported else None


def _read(message: object) -> ReferenceTimes:
    if not isinstance(message, Mapping) or set(message) != {"counted_ns", "timing", "noise_ns"}:
        raise ValueError("times of a reference are no object with counted_ns, timing and noise_ns")
    times = message["counted_ns"]
    if not isinstance(times, list) or not 1 <= len(times) <= MOST_TIMES or message["timing"] not in ASSURANCES:
        raise ValueError(f"times of a reference are no list of 1 to {MOST_TIMES}, each {', '.join(ASSURANCES)}")
    for number in (*times, message["noise_ns"]):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= _MOST_NS:
            raise ValueError(f"a time of a reference is {number!r}, expected nanoseconds")
    if not all(times):
        raise ValueError("a time of a reference is 0")
    return ReferenceTimes(
        counted_ns=tuple(map(float, times)), timing=message["timing"], noise_ns=float(message["noise_ns"])
    )
