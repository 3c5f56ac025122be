"""At most one connection attempt a second over all threads of a daemon while its database is away.

Owns the decision whether a thread may try to connect now. A fleet whose database restarts must not storm it, and every
thread that backs off by itself would still be one attempt of many. Called by `runner.store.connection` for every
connection of a daemon, which makes one pacer and gives it to all its stores. Opens nothing itself.

While all is well every thread connects at once. After a failed attempt or a broken connection one thread tries. The
others wait for its outcome, or are refused until the next attempt is due.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from runner.base.errors import DatabaseUnavailableError
from runner.base.retry import MIN_S, Backoff

#: The longest pause between two attempts: what was computed is to be committed soon after the database is back.
CAP_S: Final = 5.0
#: How long a thread waits for another one's attempt. An attempt at a host that answers takes milliseconds.
WAIT_S: Final = 3.0
#: An attempt that has not been heard of for so long no longer counts: its thread died without saying how it ended.
LOST_S: Final = 60.0

_random = random.SystemRandom()


class ConnectPacer:
    """Lets one thread at a time try to connect. Threadsafe; `clock` is monotonic, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._backoff = Backoff(cap_s=CAP_S)
        self._doubtful = False
        #: When the attempt that is under way began.
        self._trying_s: float | None = None
        #: When the last attempt began, and when the next one may.
        self._tried_s = float("-inf")
        self._due_s = float("-inf")
        self._reason = ""

    def before_connect(self) -> None:
        """Return if the caller may try to connect; it must then call `succeeded` or `failed`.

        Raises:
            DatabaseUnavailableError: not now; says why and when.
        """
        with self._changed:
            if self._under_way():
                self._changed.wait_for(lambda: not self._under_way(), timeout=WAIT_S)
                if self._under_way():
                    raise DatabaseUnavailableError("PostgreSQL: not tried: another connection attempt is under way")
                if not self._doubtful:
                    # The database has just answered: no thread needs to wait.
                    return
            now_s = self._clock()
            if self._doubtful and now_s < self._due_s:
                raise DatabaseUnavailableError(
                    f"PostgreSQL: not tried: next attempt in {self._due_s - now_s:.1f} s; before: {self._reason}"
                )
            self._trying_s = self._tried_s = now_s

    def succeeded(self) -> None:
        """The attempt led to a connection."""
        with self._changed:
            self._doubtful = False
            self._trying_s = None
            self._backoff.reset()
            self._changed.notify_all()

    def failed(self, reason: str) -> None:
        """The attempt did not lead to a connection."""
        with self._changed:
            self._doubtful = True
            self._trying_s = None
            self._reason = reason
            self._due_s = max(self._due_s, self._clock() + self._backoff.next_s())
            self._changed.notify_all()

    def lost(self, reason: str) -> None:
        """An open connection broke. The first attempt after that is soon, but not the same instant on every host."""
        with self._changed:
            if not self._doubtful:
                self._doubtful = True
                self._reason = reason
                self._due_s = max(self._clock() + _random.uniform(0.0, MIN_S), self._tried_s + MIN_S)

    def _under_way(self) -> bool:
        return self._trying_s is not None and self._clock() - self._trying_s < LOST_S
