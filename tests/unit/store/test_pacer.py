"""Who may connect when: freely while all is well, one attempt a second at most while the database is away."""

from __future__ import annotations

import heapq
import threading
from itertools import pairwise

import pytest

from runner.base.errors import DatabaseUnavailableError
from runner.base.retry import MIN_S, Backoff
from runner.store.pacer import CAP_S, LOST_S, ConnectPacer
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S

#: Threads of a daemon that want a connection during an outage, each with a back-off of its own.
LOOPS = 12


@pytest.fixture
def clock() -> Clock:
    """The pacer's clock."""
    return Clock()


@pytest.fixture
def pacer(clock: Clock) -> ConnectPacer:
    """A pacer that has seen nothing yet."""
    return ConnectPacer(clock=clock)


def refused(pacer: ConnectPacer) -> bool:
    """Whether an attempt is refused now; one that is allowed fails."""
    try:
        pacer.before_connect()
    except DatabaseUnavailableError:
        return True
    pacer.failed("connection refused")
    return False


def test_while_all_is_well_every_thread_connects(pacer: ConnectPacer) -> None:
    """Eight slots that finish together connect together: none is refused."""
    connected = []

    def connect(slot: int) -> None:
        pacer.before_connect()
        pacer.succeeded()
        connected.append(slot)

    threads = [threading.Thread(target=connect, args=(slot,)) for slot in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(connected) == list(range(8))


def test_after_a_failure_the_next_attempt_is_a_second_away_at_least(pacer: ConnectPacer, clock: Clock) -> None:
    """A caller that comes sooner is told when to come, and what went wrong before."""
    assert not refused(pacer)
    clock.now_s += MIN_S - 0.01
    with pytest.raises(DatabaseUnavailableError, match=r"next attempt in \d\.\d s; before: connection refused"):
        pacer.before_connect()
    clock.now_s += CAP_S
    assert not refused(pacer)


def test_pauses_grow_to_the_cap_and_start_over_after_a_success(pacer: ConnectPacer, clock: Clock) -> None:
    """However long the outage was, the daemon is back within seconds, and the next outage begins gently."""
    for _ in range(50):
        assert not refused(pacer)
        assert refused(pacer)
        clock.now_s += CAP_S
    pacer.before_connect()
    pacer.succeeded()
    assert not refused(pacer)
    clock.now_s += 2.0
    assert not refused(pacer)


def test_a_connection_that_breaks_is_a_doubt_for_all(pacer: ConnectPacer, clock: Clock) -> None:
    """Ten threads lose their connections at once: one tries, within a second; a success is everybody's."""
    pacer.before_connect()
    pacer.succeeded()
    clock.now_s += 100.0
    for _ in range(10):
        pacer.lost("terminating connection due to administrator command")
    clock.now_s += MIN_S
    attempts = sum(not refused(pacer) for _ in range(10))
    assert attempts == 1
    clock.now_s += CAP_S
    pacer.before_connect()
    pacer.succeeded()
    for _ in range(10):
        pacer.before_connect()
        pacer.succeeded()


def test_a_server_that_takes_connections_and_drops_them_is_not_stormed(pacer: ConnectPacer, clock: Clock) -> None:
    """Connecting works, the first statement breaks: still one attempt a second."""
    attempts = 0
    for _ in range(100):
        try:
            pacer.before_connect()
        except DatabaseUnavailableError:
            pass
        else:
            attempts += 1
            pacer.succeeded()
            pacer.lost("server closed the connection unexpectedly")
        clock.now_s += 0.1
    assert 5 <= attempts <= 11


@pytest.mark.parametrize("works", [True, False])
def test_who_comes_while_another_tries_waits_for_what_it_finds(
    pacer: ConnectPacer, monkeypatch: pytest.MonkeyPatch, *, works: bool
) -> None:
    """One attempt is under way; a second thread shares its success, or its failure."""
    monkeypatch.setattr("runner.store.pacer.WAIT_S", PATIENCE_S)
    outcome: list[bool] = []

    def second() -> None:
        try:
            pacer.before_connect()
        except DatabaseUnavailableError:
            outcome.append(False)
        else:
            outcome.append(True)

    pacer.before_connect()
    thread = threading.Thread(target=second)
    thread.start()
    while not pacer._changed._waiters:  # type: ignore[attr-defined]  # threading keeps it to itself
        assert thread.is_alive()
    if works:
        pacer.succeeded()
    else:
        pacer.failed("connection refused")
    thread.join(PATIENCE_S)
    assert outcome == [works]


def test_an_attempt_that_hangs_delays_no_other_for_long(
    pacer: ConnectPacer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are refused meanwhile, and if it never answers, another caller tries."""
    monkeypatch.setattr("runner.store.pacer.WAIT_S", 0.01)
    pacer.before_connect()
    with pytest.raises(DatabaseUnavailableError, match="another connection attempt is under way"):
        pacer.before_connect()
    clock.now_s += LOST_S
    pacer.before_connect()


def test_half_an_hour_without_a_database(pacer: ConnectPacer, clock: Clock) -> None:
    """Twelve loops want it: no two attempts within a second, and ten seconds after its return all have it."""
    begin_s, back_s = clock.now_s, clock.now_s + 1800.0
    backoffs = [Backoff(cap_s=5.0) for _ in range(LOOPS)]
    turns = [(begin_s, number) for number in range(LOOPS)]
    attempts_s: list[float] = []
    connected_s: dict[int, float] = {}
    while turns:
        clock.now_s, number = heapq.heappop(turns)
        try:
            pacer.before_connect()
        except DatabaseUnavailableError:
            pass
        else:
            if clock.now_s >= back_s:
                pacer.succeeded()
                connected_s[number] = clock.now_s
                continue
            attempts_s.append(clock.now_s)
            pacer.failed("connection refused")
        heapq.heappush(turns, (clock.now_s + backoffs[number].next_s(), number))
    assert min(later - earlier for earlier, later in pairwise(attempts_s)) >= MIN_S
    assert 1800 / CAP_S <= len(attempts_s) <= 1800
    assert len(connected_s) == LOOPS
    assert max(connected_s.values()) <= back_s + 10.0
