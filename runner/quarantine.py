"""Slots whose container would not go: nobody uses their cores and devices until it has.

Owns which slots these are, why, and the trying again. A container that cannot be killed, as when a device fell off the
bus or the engine hangs, may still compute, and still holds its device's memory. Its slot is offered no jobs, nor are
those that share devices or cores with it; as soon as the engine says that the container is gone, it is offered again.
Containers are added by `runner.evaluate`; the daemon asks for the reasons.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from sandbox.errors import Leftover, SandboxError

#: Between two attempts to remove a container; each of them is bounded by the engine module.
RETRY_S: Final = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Quarantine:
    """Threadsafe. Each container that will not go has a thread that tries to remove it."""

    def __init__(self, *, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._stuck: dict[str, list[tuple[Leftover, str]]] = {}
        self._stop = threading.Event()
        self._on_change: Callable[[], None] = lambda: None

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this whenever a slot comes in or out."""
        self._on_change = call

    def add(self, slot: str, container: Leftover, error: SandboxError) -> None:
        """Keep a slot from being used until its container is gone."""
        reason = f"container {container.id[:12]} could not be removed: {error}"
        with self._lock:
            if self._stop.is_set():
                return
            self._stuck.setdefault(slot, []).append((container, reason))
        _log.error("slot_quarantined", slot=slot, container=container.id[:12], reason=reason)
        self._on_change()
        threading.Thread(target=self._watch, args=(slot, container), name=f"quarantine-{slot}", daemon=True).start()

    def reasons(self) -> Mapping[str, str]:
        """Why which slots are not used."""
        with self._lock:
            return {slot: "; ".join(reason for _, reason in stuck) for slot, stuck in sorted(self._stuck.items())}

    def close(self) -> None:
        """Stop trying; the next start of the daemon removes what is left. Starting again makes a new object."""
        self._stop.set()

    def _watch(self, slot: str, container: Leftover) -> None:
        while not self._stop.wait(self._retry_s):
            try:
                container.close()
            except SandboxError:
                # Said when it came in; the log must not fill up with the same sentence.
                continue
            with self._lock:
                left = [entry for entry in self._stuck.get(slot, []) if entry[0] is not container]
                if left:
                    self._stuck[slot] = left
                else:
                    self._stuck.pop(slot, None)
            _log.warning("slot_container_gone", slot=slot, container=container.id[:12], free=not left)
            self._on_change()
            return
