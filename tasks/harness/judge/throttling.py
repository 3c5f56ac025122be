"""Finds the timed calls in which a device was slowed down, by readings that the daemon sends during a run.

The judge cannot ask a driver: it sees its own container only. The daemon samples clocks, temperature, power and the
reasons for low clocks outside, and sends each reading as a frame (`sandbox.protocol.Reading`). A call counts if no
reading around it shows clocks held down by heat or the power supply, or clocks other than the GPU type's. Other calls
are set aside, counted and shown. Without readings no call is set aside, and the report says so.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sandbox.protocol import Reading

#: The device is too unsteady if the calls that are set aside exceed those that count by more than this.
MAX_ASIDE = 20
#: How long to wait for the reading after the last call. Longer than the time between two readings.
PATIENCE_NS = 1_500_000_000
#: The time in a reading is believed if it is at most so long ago. Daemon and judge share the host's clock.
_OLDEST_NS = 5_000_000_000
_FIGURES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")

S = TypeVar("S")


class DeviceUnsteady(Exception):
    """Too many calls were set aside, which is the device's fault. The message says how many and why."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One reading at a moment of the judge's clock."""

    at_ns: int
    reading: Reading


@dataclass(frozen=True, kw_only=True)
class Span(Generic[S]):
    """A timed call: from before the release of its inputs until after its output was copied."""

    sample: S
    start_ns: int
    end_ns: int


def reasons(moments: Sequence[Moment], start_ns: int, end_ns: int) -> tuple[str, ...]:
    """Why a span does not count, by the readings within it, the last one before and the first one after, in order."""
    times = [moment.at_ns for moment in moments]
    first = max(bisect_right(times, start_ns) - 1, 0)
    last = bisect_left(times, end_ns) + 1
    return tuple(sorted({reason for moment in moments[first:last] for reason in moment.reading.held}))


class Readings:
    """The readings so far. Threadsafe: one thread adds them, another reads them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._moments: list[Moment] = []

    def tell(self, reading: Reading) -> None:
        """Add a reading."""
        now_ns = time.monotonic_ns()
        plausible = reading.at_ns is not None and 0 <= now_ns - reading.at_ns <= _OLDEST_NS
        with self._changed:
            at_ns = reading.at_ns if plausible and reading.at_ns is not None else now_ns
            # Readings of several devices come one after the other. Times stay in order.
            at_ns = max(at_ns, self._moments[-1].at_ns if self._moments else 0)
            self._moments.append(Moment(at_ns=at_ns, reading=reading))
            self._changed.notify_all()

    def until(self, at_ns: int) -> Sequence[Moment]:
        """All readings, once there is one of this moment or later, or after `PATIENCE_NS`.

        Returns at once if there has been no reading.
        """
        with self._changed:
            if self._moments:
                self._changed.wait_for(lambda: self._moments[-1].at_ns >= at_ns, PATIENCE_NS / 1e9)
            return tuple(self._moments)


class ThrottleFilter(Generic[S]):
    """Decides which calls of one case count."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._began_ns = time.monotonic_ns()
        self._checked: list[Span[S]] = []
        self._aside: dict[str, int] = {}
        self._count = 0
        self._moments: Sequence[Moment] = ()

    def apply(self, spans: Sequence[Span[S]]) -> list[Span[S]]:
        """The calls that count, without those that are set aside.

        Raises:
            DeviceUnsteady: too many were set aside.
        """
        fresh = spans[len(self._checked) :]
        if not fresh:
            return list(spans)
        self._moments = self._readings.until(fresh[-1].end_ns)
        for span in fresh:
            why = reasons(self._moments, span.start_ns, span.end_ns)
            if not why:
                self._checked.append(span)
                continue
            self._count += 1
            for reason in why:
                self._aside[reason] = self._aside.get(reason, 0) + 1
        if self._count > MAX_ASIDE + len(self._checked):
            calls = self._count + len(self._checked)
            raise DeviceUnsteady(
                f"the device is too unsteady to time on: {self._count} of {calls} calls were made while its clocks "
                f"were held down or off what its GPU type demands ({', '.join(sorted(self._aside))}); see that it is "
                "cooled and supplied well, and that its clocks are locked if its GPU type demands some"
            )
        return list(self._checked)

    @property
    def details(self) -> Mapping[str, Any]:
        """For the report: calls that were set aside, the reasons, and the device's readings."""
        during = [moment.reading for moment in self._moments if moment.at_ns >= self._began_ns]
        if not during:
            return {"clocks": None}
        clocks: dict[str, Any] = {
            "readings": len(during),
            "set_aside": self._count,
            "reasons": dict(sorted(self._aside.items())),
            "noted": sorted({name for reading in during for name in reading.noted}),
        }
        for name in _FIGURES:
            values = [value for reading in during if (value := getattr(reading, name)) is not None]
            if values:
                clocks[name] = {"min": min(values), "max": max(values)}
        return {"clocks": clocks}
