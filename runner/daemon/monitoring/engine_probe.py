"""Looks around while nobody else does: whether the engine is there although nothing runs, whether the clock was set.

An engine that goes away while a slot is free would else be noticed by the next job, at the cost of an attempt. The
clock matters to nothing here: durations are monotonic and times the database's; but who reads logs and certificates
wants to know. Decides nothing: the loop asks the engine itself. `run` is the body of a thread of the daemon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from runner.daemon.interfaces import Engine
from runner.errors import InfrastructureError
from runner.logs import get_logger

_log = get_logger(__name__)

#: Between two looks.
EVERY_S: Final = 5.0
#: What the host's clock may be set by between two looks without a word; time servers do little at a time.
SET_S: Final = 10.0


class EngineProbe:
    """`idle` says whether nothing runs; `on_trouble` hears that the engine does not answer."""

    def __init__(
        self,
        engine: Engine,
        *,
        idle: Callable[[], bool],
        on_trouble: Callable[[], None],
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._idle = idle
        self._on_trouble = on_trouble
        self._every_s = every_s
        self._clock = clock
        self._steady = steady
        self._offset_s = self._offset()

    def run(self, stop: threading.Event) -> None:
        """Look every few seconds until `stop` is set."""
        while not stop.wait(self._every_s):
            self.probe()

    def probe(self) -> None:
        """Look once."""
        offset_s = self._offset()
        set_by_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(set_by_s) > SET_S:
            _log.warning(
                "the clock of this host was set, or it slept; jobs do not depend on it", by_s=round(set_by_s, 1)
            )
        # What runs finds out by itself, and must not be disturbed.
        if not self._idle():
            return
        try:
            self._engine.check()
        except InfrastructureError:
            self._on_trouble()

    def _offset(self) -> float:
        return self._clock() - self._steady()
