"""What a daemon costs the database: at rest one statement per poll over two connections, and no more than that."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from runner.base.model import JobState
from tests.integration.daemon.meter import Meter
from tests.integration.daemon.rig import MakeRig, Rig
from tests.integration.daemon.stores import watch

AT_REST = ["claim", "listen listen"]
CONNECTIONS = (
    "SELECT application_name AS name FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'daemon%%' ORDER BY 1"
)


@pytest.fixture
def meter(database_url: str) -> Iterator[Meter]:
    """Stands between the daemon and its database."""
    made = Meter(database_url)
    yield made
    made.close()


def connections(rig: Rig) -> list[str]:
    """What the daemon's connections are for."""
    return [found["name"].removeprefix("daemon ") for found in rig.sql(CONNECTIONS)]


def test_a_daemon_at_rest_sends_one_statement_per_poll(make_rig: MakeRig, meter: Meter) -> None:
    """Counted on the wire: no more than `poll_s` and its spread allow, and who listens sends none."""
    rig = make_rig(daemon_url=meter.url, poll_s=0.1)
    rig.start()
    rig.wait_for(lambda: connections(rig) == AT_REST, "two connections are left")
    # A connection is seen before its first statements.
    at_rest = meter.statements
    rig.wait_for(lambda: meter.statements >= at_rest + 5, "it listens")
    began_s = time.monotonic()
    before = meter.statements
    rig.wait_for(lambda: meter.statements >= before + 20, "twenty statements")
    assert time.monotonic() - began_s >= 19 * 0.75 * 0.1
    assert connections(rig) == AT_REST


def test_no_daemon_reclaims_before_a_claim_says_that_something_is_overdue(rig: Rig) -> None:
    """An idle fleet does not look for expired leases by itself; one claim's answer is enough to start."""
    # The sweep of every two minutes is not due.
    rig.sql("UPDATE runner.sweep SET swept_at = now()")
    seen = watch(rig)
    rig.start()
    rig.wait_for(lambda: seen.claims >= 5, "it polls")
    assert seen.reclaims == 0
    submission = rig.submit()
    rig.wait_done(submission)
    rig.sql(
        "UPDATE runner.job SET state = 'running', verdict = NULL, finished_at = NULL, lease_owner = 'dead',"
        " lease_expires_at = now() - interval '1 second'"
    )
    rig.wait_for(lambda: rig.job(submission).state is JobState.DONE, "reclaimed and run again")
    assert seen.reclaims == 1


def test_a_hosts_row_that_is_gone_is_made_again(rig: Rig) -> None:
    """The row was removed, or says that the host has stopped: the daemon finds out by claiming."""
    there = "SELECT FROM runner.host WHERE name = 'test-host' AND stopped_at IS NULL"
    with capture_logs() as logs:
        rig.start()
        rig.sql("DELETE FROM runner.host")
        rig.wait_for(lambda: rig.sql(there), "it is back")
        rig.sql("UPDATE runner.host SET stopped_at = now()")
        rig.wait_for(lambda: rig.sql(there), "it is back again")
        again = "host_registered_again"
        rig.wait_for(lambda: [line["event"] for line in logs].count(again) == 2, "it says so, each time")
