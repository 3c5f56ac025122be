"""Containers that wait, started and with torch imported, for a submission that does not exist yet. One per slot.

Owns the containers nobody has asked for so far. A parked container is used once or thrown away, never cleaned: it has
not seen a byte of any submission. It is started when its slot has just become free, so that its start-up disturbs no
timed run on the same cores. Called by runner.evaluate only.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace

import structlog

from sandbox.engine import Box, DockerEngine
from sandbox.errors import SandboxError
from sandbox.spec import SandboxSpec

#: Longer than the engine itself waits for a container to become ready.
_PATIENCE_S = 120.0
PARKED_LABEL = "kernel-runner.parked"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Spot:
    spec: SandboxSpec
    box: Future[Box]


class Parking:
    """Threadsafe. At most one container per slot."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._spots: dict[str, _Spot] = {}
        self._closed = False

    def park(self, slot: str, spec: SandboxSpec) -> None:
        """Start a container for a slot in the background; does nothing where one is parked or being started."""
        parked = replace(spec, labels={PARKED_LABEL: slot})
        with self._lock:
            if self._closed or slot in self._spots:
                return
            spot = self._spots[slot] = _Spot(spec=parked, box=Future())
        threading.Thread(target=self._start, args=(spot,), name=f"park-{slot}", daemon=True).start()

    def take(self, slot: str, spec: SandboxSpec) -> Box | None:
        """The slot's parked container if it is what `spec` asks for; else it is thrown away and the answer is None.

        Job labels and the wall-clock limit do not count: the first names what a parked container cannot know, the
        second is enforced from outside.
        """
        with self._lock:
            spot = self._spots.pop(slot, None)
        if spot is None:
            return None
        try:
            box = spot.box.result(timeout=_PATIENCE_S)
        except (SandboxError, TimeoutError) as error:
            # Starting a fresh one tells what is wrong, or works.
            _log.warning("parked_container_failed", slot=slot, error=str(error))
            return None
        if _kind(spot.spec) == _kind(spec):
            return box
        self._remove(box)
        return None

    def close(self) -> None:
        """Remove every parked container; none is parked afterwards."""
        with self._lock:
            self._closed = True
            spots, self._spots = list(self._spots.values()), {}
        for spot in spots:
            try:
                self._remove(spot.box.result(timeout=_PATIENCE_S))
            except (SandboxError, TimeoutError) as error:
                _log.warning("parked_container_failed", error=str(error))

    @staticmethod
    def _remove(box: Box) -> None:
        try:
            box.close()
        except SandboxError as error:
            # It holds no submission; the daemon's next start reaps it.
            _log.warning("parked_container_not_removed", container=box.id[:12], error=str(error))

    def _start(self, spot: _Spot) -> None:
        try:
            spot.box.set_result(self._engine.start(spot.spec))
        except BaseException as error:  # noqa: BLE001 it is handed to whoever takes the container
            spot.box.set_exception(error)


def _kind(spec: SandboxSpec) -> SandboxSpec:
    """A spec without what may differ between a parked container and the job that takes it."""
    return replace(spec, labels={}, limits=replace(spec.limits, wall_s=0))
