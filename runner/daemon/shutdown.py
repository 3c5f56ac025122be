"""Requests from outside the daemon: stop, stop at once, or end so that a new daemon can be built.

Outlives the daemons that a reload replaces, so that no signal is lost between two of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class ShutdownControl:
    """Threadsafe. A thread that waits on something external also waits on `stop_claiming`; `on_change` wakes others."""

    def __init__(self) -> None:
        #: Finish what runs and end.
        self.stop = threading.Event()
        #: Do not wait for it.
        self.abort = threading.Event()
        #: Stop or make room: nothing new is begun.
        self.stop_claiming = threading.Event()
        self._rebuild: str | None = None
        self._lock = threading.Lock()
        self._callback: Callable[[], None] = lambda: None

    @property
    def rebuild(self) -> str | None:
        """What new parts are wanted for, or None."""
        return self._rebuild

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this, from whatever thread, when an order comes; replaces the one before."""
        self._callback = callback

    def request_stop(self) -> None:
        """Finish what runs and end."""
        with self._lock:
            self.stop.set()
            self.stop_claiming.set()
        self._callback()

    def request_abort(self) -> None:
        """Stop what runs and end."""
        self.abort.set()
        self.request_stop()

    def request_rebuild(self, why: str | None) -> None:
        """Finish what runs and make room for new parts; None takes that back."""
        with self._lock:
            self._rebuild = why
            if why is not None:
                self.stop_claiming.set()
            elif not self.stop.is_set():
                self.stop_claiming.clear()
        self._callback()
