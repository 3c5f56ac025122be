"""What a daemon is told from outside: to stop, to stop at once, to make room for new parts.

Owns nothing else. Outlives the daemons that a reload replaces, so that no signal is lost between two of them. Set by
`signals` and `reload`, heard by the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Orders:
    """Threadsafe. Whoever waits for something outside waits on `leave`, and is called by `on_change` otherwise."""

    def __init__(self) -> None:
        #: Finish what runs and end.
        self.stop = threading.Event()
        #: Do not wait for it.
        self.abort = threading.Event()
        #: Stop or make room: nothing new is begun.
        self.leave = threading.Event()
        self._rebuild: str | None = None
        self._lock = threading.Lock()
        self._heard: Callable[[], None] = lambda: None

    @property
    def rebuild(self) -> str | None:
        """What new parts are wanted for, or None."""
        return self._rebuild

    def on_change(self, heard: Callable[[], None]) -> None:
        """Call this, from whatever thread, when an order comes; replaces the one before."""
        self._heard = heard

    def ask_stop(self) -> None:
        """Finish what runs and end."""
        with self._lock:
            self.stop.set()
            self.leave.set()
        self._heard()

    def ask_abort(self) -> None:
        """Stop what runs and end."""
        self.abort.set()
        self.ask_stop()

    def ask_rebuild(self, why: str | None) -> None:
        """Finish what runs and make room for new parts; None takes that back."""
        with self._lock:
            self._rebuild = why
            if why is not None:
                self.leave.set()
            elif not self.stop.is_set():
                self.leave.clear()
        self._heard()
