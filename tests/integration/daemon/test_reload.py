"""A daemon whose configuration changes under it: values that count at once, and new parts without losing a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from structlog.testing import capture_logs

from runner.base.model import JobState, Verdict
from runner.daemon import ExitReason
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, Gate, Rig
from tests.integration.daemon.stores import watch
from tests.support.waiting import PATIENCE_S


def test_new_periods_count_at_once(make_rig: Callable[..., Rig], database_url: str) -> None:
    """`poll_s` and `lease_s` are read where they are used: a daemon that hardly ever polled polls often now."""
    rig = make_rig(database_url, poll_s=300.0, lease_s=3.0)
    rig.board()
    seen = watch(rig)
    rig.start()
    before = seen.claims
    rig.settings.replace(rig.config.model_copy(update={"poll_s": 0.05, "lease_s": 1800.0}))
    rig.control.request_rebuild(None)
    rig.wait_for(lambda: seen.claims > before + 5, "it polls")
    gate = rig.evaluator.script = Gate()
    rig.submit()
    assert gate.begun.wait(PATIENCE_S)
    assert rig.sql(f"SELECT lease_expires_at > now() + interval '1000 seconds' AS long FROM {JOBS}")[0]["long"]  # noqa: S608 - a text of ours


def test_a_reload_is_followed_by_a_heartbeat(make_rig: Callable[..., Rig], database_url: str) -> None:
    """Leases made shorter than the heartbeat's pause would expire before the next beat: it hears of the reload."""
    rig = make_rig(database_url, lease_s=3600.0, heartbeat_s=1200.0)
    rig.board()
    gate = rig.evaluator.script = Gate()
    rig.submit()
    rig.start()
    assert gate.begun.wait(PATIENCE_S)
    rig.settings.replace(rig.config.model_copy(update={"lease_s": 60.0, "heartbeat_s": 20.0}))
    rig.control.request_rebuild(None)
    rig.wait_for(
        lambda: rig.sql(f"SELECT FROM {JOBS} WHERE lease_expires_at < now() + interval '61 seconds'"),
        "the lease is renewed, for as long as leases last now",
    )


def test_new_parts_wait_for_the_runs_and_nothing_is_claimed_meanwhile(
    make_rig: Callable[..., Rig], database_url: str
) -> None:
    """However long they take: `drain_timeout_s` is for daemons that stop. Then `run` comes back, and says what for."""
    rig = make_rig(database_url, drain_timeout_s=0.0)
    rig.board()
    gate = rig.evaluator.script = Gate()
    running = rig.submit()
    rig.start()
    assert gate.begun.wait(PATIENCE_S)
    rig.control.request_rebuild("slots")
    rig.wait_for(
        lambda: rig.waiting_for == "new configuration (slots): 1 runs finish first", "it says what it waits for"
    )
    waiting = rig.submit()
    rig.store.cancel(rig.submit())
    assert not gate.cancelled.is_set()
    gate.go.set()
    rig.join()
    assert rig.exit_reason is ExitReason.REBUILD
    assert rig.view(running).jobs[0].verdict is Verdict.ACCEPTED
    assert rig.view(waiting).jobs[0].state is JobState.QUEUED


def test_a_change_that_is_taken_back_ends_the_waiting(rig: Rig) -> None:
    """The daemon goes on as it was, with the run it had, and claims at once."""
    gate = rig.evaluator.script = Gate()
    running = rig.submit()
    rig.start()
    assert gate.begun.wait(PATIENCE_S)
    rig.control.request_rebuild("slots")
    rig.wait_for(lambda: rig.waiting_for is not None, "it waits")
    waiting = rig.submit()
    rig.control.request_rebuild(None)
    gate.go.set()
    views = rig.wait_done(running, waiting)
    assert {view.jobs[0].verdict for view in views} == {Verdict.ACCEPTED}
    # The job may be over before the loop that claimed it has said so.
    rig.wait_for(lambda: rig.waiting_for is None, "it says that it serves")
    assert rig.exit_reason is None


def test_a_stop_ends_the_waiting_for_new_parts(rig: Rig) -> None:
    """The run is finished, and no new daemon is made."""
    gate = rig.evaluator.script = Gate()
    running = rig.submit()
    rig.start()
    assert gate.begun.wait(PATIENCE_S)
    rig.control.request_rebuild("slots")
    rig.wait_for(lambda: rig.waiting_for is not None, "it waits")
    rig.control.request_stop()
    rig.wait_for(lambda: rig.waiting_for == "shutdown", "it drains")
    gate.go.set()
    assert rig.join() == 0
    assert rig.view(running).jobs[0].verdict is Verdict.ACCEPTED


def test_a_daemon_without_a_database_can_be_given_another(
    make_rig: Callable[..., Rig], database_url: str, proxy: Proxy
) -> None:
    """Waiting at start, and while it serves: nothing runs, so it comes back at once."""
    for opened in (False, True):
        rig = make_rig(database_url, proxy.url)
        if opened:
            proxy.open()
        rig.start(ready=opened)
        proxy.shut()
        rig.wait_for(lambda rig=rig: rig.waiting_for == "the database", "it noticed")  # type: ignore[misc]  # mypy: default in lambda
        rig.control.request_rebuild("database_url")
        rig.join()
        assert rig.exit_reason is ExitReason.REBUILD


def test_waiting_for_a_run_through_an_outage_is_no_storm(
    make_rig: Callable[..., Rig], database_url: str, proxy: Proxy
) -> None:
    """The database goes away while new parts wait for a run: it is tried about once a second, not all the time."""
    rig = make_rig(database_url, proxy.url)
    rig.board()
    proxy.open()
    seen = watch(rig)
    gate = rig.evaluator.script = Gate()
    rig.submit()
    with capture_logs():
        rig.start()
        assert gate.begun.wait(PATIENCE_S)
        rig.control.request_rebuild("slots")
        rig.wait_for(lambda: rig.waiting_for == "new configuration (slots): 1 runs finish first", "it waits")
        proxy.shut()
        rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
        began_s, before = time.monotonic(), seen.registers
        rig.wait_for(lambda: seen.registers > before, "it tried again")
        # Read before the time is: however late this test looks, no more than one a second were due.
        assert seen.registers - before <= time.monotonic() - began_s + 1
        gate.go.set()
        rig.join()
    assert rig.exit_reason is ExitReason.REBUILD
