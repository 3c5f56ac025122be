"""Samples devices while a run is timed, on cores that the run does not use."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from runner.devices.facts import Reading, UnreachableError
from runner.model import Json

_FIGURES: Final = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


class Sampler:
    """A thread from `with` to its end. What it found may be asked afterwards."""

    def __init__(
        self,
        sample: Sequence[Callable[[], Reading]],
        *,
        every_s: float,
        avoid: Collection[int],
        on_round: Callable[[Sequence[Reading]], None] = lambda _: None,
        clock_deviations: Callable[[Reading], Sequence[str]] = lambda _: (),
    ) -> None:
        """`on_round` is called from the sampler's thread, each time with the readings of all devices that answered.

        `clock_deviations` says how a reading differs from what is demanded; the summary counts it.
        """
        self._sample = sample
        self._on_round = on_round
        self._astray = clock_deviations
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
        """End; a sample that is being taken is waited for, which is bounded."""
        self._stop.set()
        self._thread.join()

    def summary(self, number: int) -> Json:
        """Least, mean and most of each figure of a device, and every reason for low clocks that was seen.

        And how many readings showed clocks off what is demanded, if any did.
        """
        readings = self._readings[number]
        found: dict[str, object] = {
            "samples": len(readings),
            "throttle": sorted({name for reading in readings for name in reading.throttle}),
        }
        for name in _FIGURES:
            values = [value for reading in readings if (value := getattr(reading, name)) is not None]
            if values:
                found[name] = {"min": min(values), "mean": round(sum(values) / len(values), 3), "max": max(values)}
        off = Counter(name for reading in readings for name in self._astray(reading))
        return found | ({"clocks_off": dict(sorted(off.items()))} if off else {})

    def _run(self) -> None:
        elsewhere = os.sched_getaffinity(0) - self._avoid
        if elsewhere:
            # Of this thread alone, and of those it starts.
            with suppress(OSError):
                os.sched_setaffinity(0, elsewhere)
        while True:
            found: list[Reading] = []
            for number, sample in enumerate(self._sample):
                with suppress(UnreachableError):
                    found.append(sample())
                    self._readings[number].append(found[-1])
            if found:
                self._on_round(found)
            if self._stop.wait(self._every_s):
                return
