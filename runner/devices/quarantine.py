"""Slots that are out of use for now: a container could not be removed, a device is not fit, or nothing runs there.

Owns the set of these slots, the reasons, and the retries. A container cannot be killed if a device fell off the bus or
the engine hangs. It may still compute, and still holds its device's memory. So its slot gets no jobs. When the engine
reports that the container is gone, the slot is used again. In the same way a device that fell off the bus, or still
holds memory or processes, keeps its slot out of use until it is fit; and an engine that starts no containers, until it
does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from runner.base.logs import get_logger

#: Seconds between two attempts to remove a container; the engine module bounds each attempt.
RETRY_S: Final = 5.0
#: The keys of the reasons that concern devices, and runs; other keys are containers.
_DEVICES: Final = object()
_RUNS: Final = object()

_log = get_logger(__name__)


class Quarantine:
    """Threadsafe. Each reason has a thread that retries until the reason is gone."""

    def __init__(self, *, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._stuck: dict[str, list[tuple[object, str]]] = {}
        self._unwatched: list[threading.Thread] = []
        self._stop = threading.Event()
        #: Called whenever the state of a slot changes.
        self.on_change: Callable[[], object] = lambda: None

    def quarantine_container(self, slot: str, container: str, why: str, *, gone: Callable[[], bool]) -> None:
        """Quarantine a slot until `gone` is true of the container of this id, which could not be removed."""
        name = container[:12]
        reason = f"container {name} could not be removed: {why}"
        self._add(slot, container, reason, gone, event="slot_container_gone", container=name)

    def quarantine_devices(self, slot: str, reason: str, *, mended: Callable[[], bool]) -> None:
        """Quarantine a slot until `mended` is true of its devices. Does nothing if that is so already."""
        with self._lock:
            if any(key is _DEVICES for key, _ in self._stuck.get(slot, ())):
                return
        self._add(slot, _DEVICES, reason, mended, event="slot_devices_fit")

    def quarantine_runs(self, slot: str, fault: str, *, mended: Callable[[], bool]) -> None:
        """Quarantine a slot on which nothing runs, until `mended`."""
        self._add(slot, _RUNS, f"nothing runs there: {fault}", mended, event="slot_works")

    def _add(self, slot: str, key: object, reason: str, gone: Callable[[], bool], *, event: str, **fields: str) -> None:
        with self._lock:
            if self._stop.is_set():
                return
            self._stuck.setdefault(slot, []).append((key, reason))
        _log.error("slot_quarantined", slot=slot, reason=reason, **fields)
        self.on_change()

        def watch() -> None:
            while not self._stop.wait(self._retry_s):
                try:
                    if not gone():
                        continue
                except Exception:  # noqa: BLE001 - logged; without this thread the slot would be out of use for good
                    _log.exception("slot_retry_failed", slot=slot)
                    continue
                with self._lock:
                    left = [entry for entry in self._stuck.get(slot, []) if entry[0] is not key]
                    if left:
                        self._stuck[slot] = left
                    else:
                        self._stuck.pop(slot, None)
                _log.warning(event, slot=slot, free=not left, **fields)
                self.on_change()
                return

        with self._lock:
            self._unwatched.append(threading.Thread(target=watch, name=f"quarantine-{slot}", daemon=True))
        self._start_watching()

    def _start_watching(self) -> None:
        """Start the threads that are to watch; where the process may have no more now, at the next question."""
        with self._lock, suppress(RuntimeError):
            while self._unwatched:
                self._unwatched[-1].start()
                self._unwatched.pop()

    def reasons(self) -> Mapping[str, str]:
        """The quarantined slots with the reasons."""
        self._start_watching()
        with self._lock:
            return {slot: "; ".join(reason for _, reason in stuck) for slot, stuck in sorted(self._stuck.items())}

    def close(self) -> None:
        """Stop the retries. The next start of the daemon removes the containers that are left."""
        self._stop.set()
