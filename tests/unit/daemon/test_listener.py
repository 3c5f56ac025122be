"""Who acts on an announcement of work."""

from __future__ import annotations

from runner.daemon.listener import MAX_REACTING_HOSTS, is_chosen, should_react


def test_up_to_a_crowd_everybody_acts_and_beyond_it_about_as_many() -> None:
    """No delay in a usual fleet, and no storm in a big one."""
    assert all(should_react(rivals) for rivals in range(MAX_REACTING_HOSTS + 1) for _ in range(10))
    acting = sum(should_react(100 * MAX_REACTING_HOSTS) for _ in range(10_000))
    assert 40 <= acting <= 170, "a hundred on average"


def test_up_to_a_crowd_every_idle_host_listens_and_beyond_it_about_as_many() -> None:
    """By a random number of each host, which stays the same until it has had a job."""
    tickets = [(number + 0.5) / 1000 for number in range(1000)]
    assert all(is_chosen(MAX_REACTING_HOSTS, ticket) for ticket in tickets)
    assert sum(is_chosen(1000, ticket) for ticket in tickets) == MAX_REACTING_HOSTS
