"""Who acts on an announcement of work."""

from __future__ import annotations

from runner.daemon.listener import CROWD, takes_part


def test_up_to_a_crowd_everybody_acts_and_beyond_it_about_as_many() -> None:
    """No delay in a usual fleet, and no storm in a big one."""
    assert all(takes_part(rivals) for rivals in range(CROWD + 1) for _ in range(10))
    acting = sum(takes_part(100 * CROWD) for _ in range(10_000))
    assert 40 <= acting <= 170, "a hundred on average"
