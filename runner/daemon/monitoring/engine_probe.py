"""Checks the container engine while no job runs; else the next job would lose an attempt to an engine that is gone.

Decides nothing: the claiming thread asks the engine itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from runner.daemon.interfaces import Engine
from runner.errors import InfrastructureError

#: The time between two probes.
EVERY_S: Final = 5.0


class EngineProbe:
    """`idle` says whether no job runs; `on_trouble` is called when the engine does not answer.

    `run` is a thread's body.
    """

    def __init__(
        self, engine: Engine, *, idle: Callable[[], bool], on_trouble: Callable[[], None], every_s: float = EVERY_S
    ) -> None:
        self._engine = engine
        self._idle = idle
        self._on_trouble = on_trouble
        self._every_s = every_s

    def run(self, stop: threading.Event) -> None:
        """Probe every few seconds until `stop` is set."""
        while not stop.wait(self._every_s):
            self.probe()

    def probe(self) -> None:
        """Probe once."""
        # A running job notices by itself, and must not be disturbed.
        if not self._idle():
            return
        try:
            self._engine.check()
        except InfrastructureError:
            self._on_trouble()
