"""Slots that are not used for now: their container would not go, or their devices are not fit.

Owns which slots these are, why, and the trying again. A container that cannot be killed, as when a device fell off the
bus or the engine hangs, may still compute, and still holds its device's memory. Its slot is offered no jobs, nor are
those that share devices or cores with it; as soon as the engine says that the container is gone, it is offered again.
A device that fell off the bus, or in which something is left over, keeps its slot out in the same way until it is fit
again. The daemon asks for the reasons.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import structlog

from sandbox.errors import Leftover, SandboxError

#: Between two attempts to remove a container; each of them is bounded by the engine module.
RETRY_S: Final = 5.0
#: What keeps a slot out that is no container.
_DEVICES: Final = object()

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Cause(Enum):
    """What keeps a slot out."""

    #: A container that does not go.
    CONTAINER = "container"
    #: Devices that are not fit.
    DEVICE = "device"


class Quarantine:
    """Threadsafe. Each reason for which a slot is out has a thread that tries to end it."""

    def __init__(self, *, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._stuck: dict[str, list[tuple[object, str]]] = {}
        #: Slots that are used, but not for what is ranked.
        self._degraded: dict[str, str] = {}
        #: Slots with a remark at which a thread looks again.
        self._watched: set[str] = set()
        self._stop = threading.Event()
        self._on_change: Callable[[], None] = lambda: None

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this whenever a slot comes in or out."""
        self._on_change = call

    def add(self, slot: str, container: Leftover, error: SandboxError) -> None:
        """Keep a slot from being used until its container is gone."""
        reason = f"container {container.id[:12]} could not be removed: {error}"

        def gone() -> bool:
            try:
                container.close()
            except SandboxError:
                # Said when it came in; the log must not fill up with the same sentence.
                return False
            return True

        self._add(slot, container, reason, gone, event="slot_container_gone", container=container.id[:12])

    def quarantine_devices(self, slot: str, reason: str, *, mended: Callable[[], bool]) -> None:
        """Keep a slot from being used until its devices are fit again, as `mended` says; once at a time."""
        with self._lock:
            if any(key is _DEVICES for key, _ in self._stuck.get(slot, ())):
                return
        self._add(slot, _DEVICES, reason, mended, event="slot_devices_fit")

    def mark_degraded(self, slot: str, reason: str | None, *, look: Callable[[], None] = lambda: None) -> None:
        """Say why nothing ranked runs on a slot now; None: nothing keeps it from that.

        As long as something does, `look` is called every few seconds: it remarks what it finds.
        """
        with self._lock:
            if self._degraded.get(slot) == reason:
                return
            if reason is None:
                del self._degraded[slot]
            else:
                self._degraded[slot] = reason
            watch = reason is not None and slot not in self._watched
            if watch:
                self._watched.add(slot)
        if watch:
            threading.Thread(target=self._watch, args=(slot, look), name=f"degraded-{slot}", daemon=True).start()
        if reason is None:
            _log.info("slot_fit", slot=slot)
        else:
            _log.warning("slot_degraded", slot=slot, reason=reason)
        self._on_change()

    def _watch(self, slot: str, look: Callable[[], None]) -> None:
        while not self._stop.wait(self._retry_s):
            with self._lock:
                if slot not in self._degraded:
                    self._watched.discard(slot)
                    return
            look()

    def degraded(self) -> Mapping[str, str]:
        """Why nothing ranked runs on which slots."""
        with self._lock:
            return dict(self._degraded)

    def _add(self, slot: str, key: object, reason: str, gone: Callable[[], bool], *, event: str, **fields: str) -> None:
        with self._lock:
            if self._stop.is_set():
                return
            self._stuck.setdefault(slot, []).append((key, reason))
        _log.error("slot_quarantined", slot=slot, reason=reason, **fields)
        self._on_change()

        def watch() -> None:
            while not self._stop.wait(self._retry_s):
                if not gone():
                    continue
                with self._lock:
                    left = [entry for entry in self._stuck.get(slot, []) if entry[0] is not key]
                    if left:
                        self._stuck[slot] = left
                    else:
                        self._stuck.pop(slot, None)
                _log.warning(event, slot=slot, free=not left, **fields)
                self._on_change()
                return

        threading.Thread(target=watch, name=f"quarantine-{slot}", daemon=True).start()

    def reasons(self) -> Mapping[str, str]:
        """Why which slots are not used."""
        with self._lock:
            return {slot: "; ".join(reason for _, reason in stuck) for slot, stuck in sorted(self._stuck.items())}

    def causes(self) -> frozenset[Cause]:
        """What kinds of things keep slots out."""
        with self._lock:
            keys = [key for stuck in self._stuck.values() for key, _ in stuck]
        return frozenset(Cause.DEVICE if key is _DEVICES else Cause.CONTAINER for key in keys)

    def close(self) -> None:
        """Stop trying; the next start of the daemon removes what is left. Starting again makes a new object."""
        self._stop.set()
