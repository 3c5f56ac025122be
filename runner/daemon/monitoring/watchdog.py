"""Pings systemd's watchdog while the main thread makes progress.

The main thread announces when it will report next. A thread of its own sends `WATCHDOG=1` (sd_notify(3)) as long as
that time has not passed. So a database that is away, a silent engine and a run of hours are waited for; a deadlock is
not. While the daemon stops, the same messages ask for more time (`EXTEND_TIMEOUT_USEC=`): a drain may take as long as
its runs, but must not hang. Must not decide what happens to a daemon that hangs: the service manager does.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from runner.base.logs import get_logger

_log = get_logger(__name__)

#: The time between two reports of a main thread that waits for nothing. Together with `WatchdogSec=` of the unit it
#: bounds how long a hanging daemon lives: less than a minute.
STEP_LIMIT_S: Final = 25.0
#: For one request to the engine, which answers within a minute or not at all, and one to the database.
REQUEST_LIMIT_S: Final = 150.0
#: For tasks of minutes: asking the engine for everything, testing the environment, removing stubborn containers.
LONG_TASK_LIMIT_S: Final = 1800.0
#: The time between two pings, unless the service manager wants more.
_EVERY_S: Final = 10.0


class Watchdog:
    """The main thread's progress. `expect` is for that thread, the rest for any."""

    def __init__(
        self,
        notify: Callable[[str], object] | None = None,
        *,
        watchdog_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`notify` takes a message for the service manager; `watchdog_s` is how long that waits for one."""
        self._notify = notify
        #: Three times in the period, so that one message may be late.
        self._every_s = min(_EVERY_S, watchdog_s / 3) if watchdog_s is not None else _EVERY_S
        self._clock = clock
        self._due_s = clock() + STEP_LIMIT_S
        self._stuck = False
        self._main = threading.main_thread().ident
        self._halt = threading.Event()

    def expect(self, within_s: float = STEP_LIMIT_S) -> None:
        """The main thread makes progress, and will report again within so many seconds."""
        self._due_s = self._clock() + within_s

    @property
    def is_alive(self) -> bool:
        """Whether the main thread has reported in time."""
        return self._clock() <= self._due_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ping the service manager while the main thread makes progress; does nothing without one."""
        if self._notify is None:
            yield
            return
        thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._halt.set()
            thread.join()

    def tell(self) -> None:
        """Send one ping if the main thread makes progress; else log once where it hangs."""
        if self.is_alive:
            if self._stuck:
                _log.warning("main_thread_recovered")
            self._stuck = False
            if self._notify is not None:
                # Heeded while the service stops, and only if that takes longer than the unit foresees.
                self._notify(f"WATCHDOG=1\nEXTEND_TIMEOUT_USEC={int(4 * self._every_s * 1e6)}")
        elif not self._stuck:
            self._stuck = True
            _log.error("main_thread_hangs", stack=self._where())

    def _run(self) -> None:
        self.tell()
        while not self._halt.wait(self._every_s):
            self.tell()

    def _where(self) -> str:
        """Where the main thread stands: files, lines and names, no values."""
        frame = None if self._main is None else sys._current_frames().get(self._main)  # noqa: SLF001 the documented way
        return "".join(traceback.format_stack(frame)[-12:]) if frame is not None else "unknown"
