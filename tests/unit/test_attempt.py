"""The line before a slot: one at a time, in order, and who is cancelled leaves it."""

from __future__ import annotations

import queue
import threading

import pytest

from runner.attempt import Turnstile
from runner.errors import CancelledByRequest


def test_a_slot_is_used_by_one_at_a_time_in_the_order_they_came() -> None:
    """What was given first runs first, however many wait."""
    turnstile = Turnstile()
    order: queue.SimpleQueue[int] = queue.SimpleQueue()
    inside = threading.Semaphore(1)

    def use(number: int, waits: threading.Event) -> None:
        with turnstile.turn(threading.Event(), on_wait=waits.set):
            assert inside.acquire(blocking=False)
            order.put(number)
            inside.release()

    threads = []
    with turnstile.turn(threading.Event()):
        for number in range(4):
            waits = threading.Event()
            threads.append(threading.Thread(target=use, args=(number, waits)))
            threads[-1].start()
            assert waits.wait(10)
    for thread in threads:
        thread.join(10)
    assert [order.get(timeout=10) for _ in range(4)] == [0, 1, 2, 3]


def test_who_is_cancelled_leaves_the_line_to_those_behind() -> None:
    """And the slot as it was."""
    turnstile = Turnstile()
    cancel = threading.Event()
    cancel.set()
    with (
        turnstile.turn(threading.Event()),
        pytest.raises(CancelledByRequest, match="before its slot was free"),
        turnstile.turn(cancel),
    ):
        raise AssertionError("nobody gets in beside another")
    with turnstile.turn(cancel):
        pass


def test_a_run_that_breaks_frees_its_slot() -> None:
    """Whatever it died of."""
    turnstile = Turnstile()
    with pytest.raises(ZeroDivisionError), turnstile.turn(threading.Event()):
        raise ZeroDivisionError
    with turnstile.turn(threading.Event(), on_wait=lambda: pytest.fail("somebody is in")):
        pass
