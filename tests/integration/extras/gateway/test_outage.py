"""The database goes away and comes back: requests wait, nothing is lost and nothing is stored twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack

from tests.integration.extras.gateway.conftest import Answer, Gate
from tests.support.waiting import wait_until

AWAY_S = 3.0


def test_polls_and_submissions_wait_for_the_database(
    gate: Gate, outage: Callable[[], AbstractContextManager[None]]
) -> None:
    """A poll that fails would end popcorn-cli; a submission is stored once."""
    submission_id = gate.submit().json["details"]["id"]
    asked: list[Callable[[], Answer]] = [
        *[lambda: gate.ask("GET", f"/user/submissions/{submission_id}", cli="ada-token")] * 5,
        *[lambda: gate.submit(cli="bob-token")] * 3,
    ]
    with ExitStack() as end:
        end.enter_context(outage())
        assert gate.ask("GET", "/health").status == 200
        assert gate.ask("GET", "/readyz").status == 503
        with ThreadPoolExecutor(len(asked)) as threads:
            waiting = [threads.submit(question) for question in asked]
            time.sleep(AWAY_S)
            assert not any(answer.done() for answer in waiting)
            end.close()
    assert sorted(answer.result().status for answer in waiting) == [200] * 5 + [202] * 3
    assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(4,)]


def test_a_database_that_stays_away_ends_a_request(
    gate: Gate, open_gate: Callable[..., Gate], outage: Callable[[], AbstractContextManager[None]]
) -> None:
    """With 503, when the request has waited for so long; afterwards the next one is served."""
    impatient = open_gate(patience_s=0.5)
    with outage():
        assert impatient.ask("GET", "/user/submissions", cli="ada-token").status == 503
    wait_until(lambda: impatient.ask("GET", "/user/submissions", cli="ada-token").status == 200, "it is served")
