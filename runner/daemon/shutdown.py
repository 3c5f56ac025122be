"""Requests from outside the daemon: stop, stop at once, or end so that a new daemon can be built.

Outlives the daemons that a reload replaces, so that no signal is lost between two of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class ShutdownControl:
    """Threadsafe. A thread that waits on something external also waits on `stop_claiming`; `on_change` wakes others."""

    def __init__(self) -> None:
        #: Finish running jobs and end.
        self.stop = threading.Event()
        #: Do not wait for running jobs.
        self.abort = threading.Event()
        #: A stop or a rebuild was requested: begin no new job.
        self.stop_claiming = threading.Event()
        self._rebuild: str | None = None
        self._lock = threading.Lock()
        self._callback: Callable[[], None] = lambda: None

    @property
    def rebuild(self) -> str | None:
        """Which parts are to be rebuilt, or None."""
        return self._rebuild

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this, from any thread, when a request comes; replaces the earlier callback."""
        self._callback = callback

    def request_stop(self) -> None:
        """Finish running jobs and end."""
        with self._lock:
            self.stop.set()
            self.stop_claiming.set()
        self._callback()

    def request_abort(self) -> None:
        """Stop running jobs and end."""
        self.abort.set()
        self.request_stop()

    def request_rebuild(self, why: str | None) -> None:
        """Finish running jobs and end for a rebuild; None withdraws the request."""
        with self._lock:
            self._rebuild = why
            if why is not None:
                self.stop_claiming.set()
            elif not self.stop.is_set():
                self.stop_claiming.clear()
        self._callback()
