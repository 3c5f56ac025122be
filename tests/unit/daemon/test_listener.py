"""Who acts on an announcement of work."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from runner.daemon.listener import MAX_REACTING_HOSTS, QueueListener, reaction_delay_s, should_react
from runner.store import Stop, Wakeup


def test_up_to_a_crowd_everybody_acts_and_beyond_it_about_as_many() -> None:
    """No delay in a usual fleet, and no storm in a big one."""
    assert all(should_react(rivals) for rivals in range(MAX_REACTING_HOSTS + 1) for _ in range(10))
    acting = sum(should_react(100 * MAX_REACTING_HOSTS) for _ in range(10_000))
    assert 40 <= acting <= 170, "a hundred on average"


def test_the_only_host_reacts_at_once_and_rivals_one_after_the_other() -> None:
    """The first of many comes early; the last one of a thousand does not wait longer than the last one of twelve."""
    assert reaction_delay_s(1) == 0.0
    delays_s = [reaction_delay_s(1000) for _ in range(1000)]
    assert max(delays_s) <= (MAX_REACTING_HOSTS - 1) * 0.003
    assert len(set(delays_s)) > 900


def test_a_listener_waits_its_turn_before_it_reacts_to_work_and_not_before_it_stops_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancelled job does not run on while hosts take turns."""
    seen: list[object] = []
    stop = Stop()

    def listen(**_: object) -> Wakeup:
        stop.set()
        return Wakeup(gpu_types=frozenset({"CPU"}), hosts=frozenset({"this one"}))

    def delay_s(rivals: int) -> float:
        seen.append(rivals)
        return 0.0

    monkeypatch.setattr("runner.daemon.listener.reaction_delay_s", delay_s)
    QueueListener(
        lambda _purpose: Mock(listen=listen),
        host="this one",
        gpu_types=frozenset({"CPU"}),
        rivals=lambda: 7,
        on_work=lambda: seen.append("work"),
        on_host_notice=lambda: seen.append("notice"),
    ).run(stop)
    assert seen == ["notice", 7, "work"]
