"""The back-off rule."""

from __future__ import annotations

import threading

from runner.base.retry import MIN_S, Backoff, between_s


def test_waits_grow_to_the_cap_and_never_go_below_one_second() -> None:
    """At most one attempt a second, however the dice fall; one that is told to stop does not sleep out its pause."""
    for _ in range(50):
        backoff = Backoff(cap_s=8.0)
        waits = [backoff.next_s() for _ in range(30)]
        assert min(waits) >= MIN_S
        assert waits[0] <= 2.0
        assert max(waits) <= 8.0
    stop = threading.Event()
    stop.set()
    assert Backoff().wait(stop)


def test_a_pause_between_two_bounds_is_spread_over_them() -> None:
    """Hosts that start together drift apart, within the bounds."""
    pauses = [between_s(7.5, 9.7) for _ in range(200)]
    assert 7.5 <= min(pauses) < 8.0
    assert 9.2 < max(pauses) <= 9.7
