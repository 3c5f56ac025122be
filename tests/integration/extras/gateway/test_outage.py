"""The database goes away and comes back; test_restarts.py has clients that poll and submit meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.integration.extras.gateway.conftest import Gate
from tests.support.waiting import wait_until


def test_a_database_that_stays_away_ends_a_request(
    gate: Gate, open_gate: Callable[..., Gate], outage: Callable[[], AbstractContextManager[None]]
) -> None:
    """With 503, when the request has waited for so long; afterwards the next one is served. The process lives."""
    impatient = open_gate(patience_s=0.5)
    with outage():
        assert impatient.ask("GET", "/health").status == 200
        assert impatient.ask("GET", "/readyz").status == 503
        assert impatient.ask("GET", "/user/submissions", cli="ada-token").status == 503
    wait_until(lambda: impatient.ask("GET", "/user/submissions", cli="ada-token").status == 200, "it is served")
