"""Samples devices while a run is timed, on cores that the run does not use."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from runner.base.device_facts import Reading, UnreachableError
from runner.base.model import Json

_FIGURES: Final = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


class Sampler:
    """Samples from the beginning of a `with` block to its end. The summaries can be read afterwards."""

    def __init__(
        self,
        sample: Sequence[Callable[[], Reading]],
        *,
        every_s: float,
        avoid: Collection[int],
        on_round: Callable[[Sequence[Reading]], None] = lambda _: None,
        clock_deviations: Callable[[Reading], Sequence[str]] = lambda _: (),
    ) -> None:
        """Prepare the thread.

        Args:
            sample: reads one device each.
            every_s: the pause between two rounds, in seconds.
            avoid: cores that the thread does not use.
            on_round: called from the thread after each round, with the readings of all devices that answered.
            clock_deviations: how a reading differs from the clocks that are demanded; the summary counts these.
        """
        self._sample = sample
        self._on_round = on_round
        self._clock_deviations = clock_deviations
        self._every_s = every_s
        self._avoid = frozenset(avoid)
        self._stop = threading.Event()
        self._readings: list[list[Reading]] = [[] for _ in sample]
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End. Waits for a sample in progress, whose time is bounded."""
        self._stop.set()
        self._thread.join()

    def summary(self, number: int) -> Json:
        """Least, mean and largest value of each figure of a device, and all reasons for low clocks.

        If clocks differed from the demand: in how many readings.
        """
        readings = self._readings[number]
        summary: dict[str, object] = {
            "samples": len(readings),
            "throttle": sorted({name for reading in readings for name in reading.throttle}),
        }
        for name in _FIGURES:
            values = [value for reading in readings if (value := getattr(reading, name)) is not None]
            if values:
                summary[name] = {"min": min(values), "mean": round(sum(values) / len(values), 3), "max": max(values)}
        off = Counter(name for reading in readings for name in self._clock_deviations(reading))
        return summary | ({"clocks_off": dict(sorted(off.items()))} if off else {})

    def _run(self) -> None:
        elsewhere = os.sched_getaffinity(0) - self._avoid
        if elsewhere:
            # Applies to this thread, and to threads that it starts.
            with suppress(OSError):
                os.sched_setaffinity(0, elsewhere)
        while True:
            readings: list[Reading] = []
            for number, sample in enumerate(self._sample):
                with suppress(UnreachableError):
                    readings.append(sample())
                    self._readings[number].append(readings[-1])
            if readings:
                self._on_round(readings)
            if self._stop.wait(self._every_s):
                return
