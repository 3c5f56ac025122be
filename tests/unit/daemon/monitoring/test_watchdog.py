"""The watchdog: the service manager hears of a main thread that makes progress, and no more of one that hangs."""

from __future__ import annotations

import threading

from structlog.testing import capture_logs

from runner.daemon.monitoring.watchdog import STEP_LIMIT_S, Watchdog
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S


def test_the_watchdog_is_told_as_long_as_the_main_thread_keeps_its_word() -> None:
    """An announced wait may take as long as announced; a late thread is reported once, with where it hangs."""
    clock, told = Clock(), list[str]()
    watchdog = Watchdog(told.append, watchdog_s=15, clock=clock)
    watchdog.tell()
    assert told == ["WATCHDOG=1\nEXTEND_TIMEOUT_USEC=20000000"]
    watchdog.expect(3600)
    clock.now_s += 3599
    watchdog.tell()
    assert (len(told), watchdog.is_alive) == (2, True)
    watchdog.expect()
    clock.now_s += STEP_LIMIT_S + 1
    with capture_logs() as logs:
        watchdog.tell()
        watchdog.tell()
    assert (len(told), watchdog.is_alive) == (2, False)
    (line,) = logs
    assert line["event"] == "main_thread_hangs"
    assert __file__ in line["stack"]
    watchdog.expect()
    with capture_logs() as logs:
        watchdog.tell()
    assert (len(told), [line["event"] for line in logs]) == (3, ["main_thread_recovered"])


def test_messages_come_by_themselves_and_end_with_the_block() -> None:
    """A third of the watchdog's period apart, from a thread of its own.

    A daemon in a terminal has no service manager and no such thread: its user sees it.
    """
    heard = threading.Semaphore(0)
    watchdog = Watchdog(lambda _message: heard.release(), watchdog_s=0.03)
    with watchdog.running():
        for _ in range(3):
            assert heard.acquire(timeout=PATIENCE_S)
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}
    with Watchdog().running():
        assert "watchdog" not in {thread.name for thread in threading.enumerate()}
