"""Requests from outside the daemon: stop, or stop at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ShutdownControl:
    """Threadsafe. A thread that waits on something external also waits on `stop`; `on_stop` wakes others."""

    def __init__(self) -> None:
        #: Begin no new job, finish running ones and end.
        self.stop = threading.Event()
        #: Do not wait for running jobs.
        self.abort = threading.Event()
        self._callback: Callable[[], None] = lambda: None

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call this, from any thread, with each request; replaces the earlier callback."""
        self._callback = callback

    def request_stop(self) -> None:
        """Finish running jobs and end."""
        self.stop.set()
        self._callback()

    def hear_signal(self) -> None:
        """Finish running jobs and end; at the second signal stop them."""
        if self.stop.is_set():
            self.request_abort()
        else:
            self.request_stop()

    def request_abort(self) -> None:
        """Stop running jobs and end."""
        self.abort.set()
        self.request_stop()
