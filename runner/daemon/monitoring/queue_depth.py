"""The length of the queue for `/metrics`, asked at most once a minute.

Owns how old an answer may be. An idle host makes 0.58 statements a second (`poll_s`) and may make 0.6, which leaves one
a minute here. No caller waits longer than `WAIT_S`, whatever the database does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from runner.base.errors import InfrastructureError
from runner.base.logs import LogRateLimit, get_logger
from runner.daemon.interfaces import StoreFactory
from runner.store import QueueDepth

_log = get_logger(__name__)

#: The least time between two questions to the database.
KEPT_S: Final = 60.0
#: Older answers are not shown.
STALE_S: Final = 300.0
#: How long a caller waits for a new answer.
WAIT_S: Final = 2.0


class QueueDepthCache:
    """Threadsafe. Its connection is open only during a question."""

    def __init__(self, store_factory: StoreFactory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store_factory = store_factory
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_s = float("-inf")
        self._answered_s = float("-inf")
        self._depths: Sequence[QueueDepth] = ()
        self._answered = threading.Event()
        self._log_limit = LogRateLimit()

    def get(self) -> Sequence[QueueDepth] | None:
        """The waiting jobs by GPU type, at most a minute old while the database answers; None: not known."""
        with self._lock:
            due = self._clock() - self._asked_s >= KEPT_S
            if due:
                self._asked_s = self._clock()
                self._answered.clear()
                threading.Thread(target=self._ask, name="queue-depth", daemon=True).start()
        self._answered.wait(WAIT_S)
        with self._lock:
            return self._depths if self._clock() - self._answered_s < STALE_S else None

    def _ask(self) -> None:
        store = self._store_factory("metrics")
        try:
            depths = store.queue_depths()
        except InfrastructureError as error:
            if (left_out := self._log_limit.due("away")) is not None:
                _log.info("queue_depth_unknown", error=str(error), left_out=left_out)
        except Exception:  # noqa: BLE001 - the outermost frame of a thread; logged
            _log.exception("queue_depth_unknown")
        else:
            with self._lock:
                self._depths, self._answered_s = depths, self._clock()
        finally:
            store.close()
            self._answered.set()
