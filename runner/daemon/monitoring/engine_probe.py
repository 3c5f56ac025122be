"""Checks the container engine while no job runs, and notices when the host's clock was set.

Otherwise the next job would find out that the engine is gone, at the cost of an attempt. No job depends on the host's
clock: durations are monotonic, and times come from the database. But readers of logs and certificates want to know.
Decides nothing: the claiming thread asks the engine itself.
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

#: The time between two probes.
EVERY_S: Final = 5.0
#: Smaller steps of the clock are not logged: time servers make many.
SET_S: Final = 10.0


class EngineProbe:
    """`idle` says whether no job runs; `on_trouble` is called when the engine does not answer.

    `run` is a thread's body.
    """

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
        """Probe every few seconds until `stop` is set."""
        while not stop.wait(self._every_s):
            self.probe()

    def probe(self) -> None:
        """Probe once."""
        offset_s = self._offset()
        set_by_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(set_by_s) > SET_S:
            _log.warning(
                "the clock of this host was set, or it slept; jobs do not depend on it", by_s=round(set_by_s, 1)
            )
        # A running job finds out by itself, and must not be disturbed.
        if not self._idle():
            return
        try:
            self._engine.check()
        except InfrastructureError:
            self._on_trouble()

    def _offset(self) -> float:
        return self._clock() - self._steady()
