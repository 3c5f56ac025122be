"""The pulse: the service manager hears of a main thread that goes on, and no more of one that hangs."""

from __future__ import annotations

import threading

from structlog.testing import capture_logs

from runner.daemon.monitoring.watchdog import STEP_S, Pulse


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.now_s


def test_the_watchdog_is_told_as_long_as_the_main_thread_keeps_its_word() -> None:
    """Whoever announces a long wait has that long; whoever is late is reported once, with the place it hangs at."""
    clock, told = Clock(), list[str]()
    pulse = Pulse(told.append, watchdog_s=15, clock=clock)
    pulse.tell()
    assert told == ["WATCHDOG=1\nEXTEND_TIMEOUT_USEC=20000000"]
    pulse.expect(3600)
    clock.now_s += 3599
    pulse.tell()
    assert (len(told), pulse.beats) == (2, True)
    pulse.expect()
    clock.now_s += STEP_S + 1
    with capture_logs() as logs:
        pulse.tell()
        pulse.tell()
    assert (len(told), pulse.beats) == (2, False)
    (line,) = logs
    assert line["event"] == "the main thread hangs; the service manager is not told any more"
    assert __file__ in line["stack"]
    pulse.expect()
    with capture_logs() as logs:
        pulse.tell()
    assert (len(told), [line["event"] for line in logs]) == (3, ["the main thread goes on"])


def test_messages_come_by_themselves_and_end_with_the_block() -> None:
    """A third of the watchdog's period apart, from a thread of its own."""
    heard = threading.Semaphore(0)
    pulse = Pulse(lambda _message: heard.release(), watchdog_s=0.03)
    with pulse.running():
        for _ in range(3):
            assert heard.acquire(timeout=30)
    assert "pulse" not in {thread.name for thread in threading.enumerate()}


def test_without_a_service_manager_there_is_no_thread() -> None:
    """A daemon in a terminal is watched by whoever looks at it."""
    with Pulse().running():
        assert "pulse" not in {thread.name for thread in threading.enumerate()}
