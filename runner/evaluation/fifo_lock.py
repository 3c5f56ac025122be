"""The lock on a slot: the jobs that were given to it get it in their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runner.errors import CancelledByRequest

#: How soon a waiting job notices its cancellation.
CANCEL_POLL_S: Final = 0.1


class FifoLock:
    """A lock that threads get in the order in which they asked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: The first ticket holds the lock.
        self._line: deque[object] = deque()

    @property
    def length(self) -> int:
        """How many threads hold it or wait for it."""
        return len(self._line)

    @contextmanager
    def hold(self, cancel: threading.Event) -> Iterator[None]:
        """Hold the lock.

        Raises:
            CancelledByRequest: `cancel` was set before the lock was free.
        """
        ticket = object()
        with self._changed:
            self._line.append(ticket)
        try:
            with self._changed:
                while self._line[0] is not ticket:
                    if cancel.is_set():
                        raise CancelledByRequest("cancelled before its slot was free")
                    self._changed.wait(CANCEL_POLL_S)
            yield
        finally:
            with self._changed:
                self._line.remove(ticket)
                self._changed.notify_all()
