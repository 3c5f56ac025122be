"""The threads of a daemon: named, kept alive, ended together."""

from __future__ import annotations

import threading
from collections.abc import Callable

from runner.base.logs import LogRateLimit, get_logger
from runner.base.retry import Backoff
from runner.store import Stop

_log = get_logger(__name__)


class ThreadSupervisor:
    """Starts threads whose bodies end when `halt` is set. Belongs to the claiming thread."""

    def __init__(self) -> None:
        self.halt = Stop()
        self._threads: list[threading.Thread] = []

    def spawn(self, name: str, body: Callable[[Stop], None]) -> None:
        """Start a thread; its body gets `halt`."""
        thread = threading.Thread(target=self._supervise, args=(name, body), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for each thread, so long at most; those that do not end are left behind."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _supervise(self, name: str, body: Callable[[Stop], None]) -> None:
        """Run a thread's body, again after every error: without its heartbeat a daemon would lose every job."""
        backoff = Backoff()
        log_limit = LogRateLimit()
        while not self.halt.is_set():
            try:
                body(self.halt)
            except Exception:  # noqa: BLE001 - the outermost frame of a thread; logged
                if (left_out := log_limit.due(name)) is not None:
                    _log.exception("thread_restarted", thread=name, left_out=left_out)
                backoff.wait(self.halt)
            else:
                return
