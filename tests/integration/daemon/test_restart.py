"""A daemon that comes back: what its earlier process left is dealt with at once, and in its own name only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable

import psycopg
import pytest
from structlog.testing import capture_logs

from runner.base.model import JobState, Slot, Verdict
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, Evaluator, MakeRig, accepted
from tests.support.waiting import PATIENCE_S


class Slow(Evaluator):
    """An evaluation environment that takes its time to get ready."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go = threading.Event()

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Wait for the test."""
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        super().prepare(slots)


def test_what_was_left_is_dealt_with_before_the_evaluation_environment(make_rig: MakeRig) -> None:
    """Containers go and jobs are given back while the environment is still being prepared, which may take minutes."""
    rig = make_rig(lease_s=3600.0)
    submission = rig.submit()
    rig.claim()
    slow = rig.evaluator = Slow()
    rig.start(ready=False)
    assert slow.begun.wait(PATIENCE_S)
    assert rig.job(submission).state is JobState.QUEUED
    assert rig.engine.reaped == 1
    slow.go.set()
    rig.wait_done(submission)


@pytest.mark.parametrize("missing", ["the evaluation environment", "the container engine"])
def test_the_lease_of_a_spooled_result_is_renewed_whatever_else_is_missing(make_rig: MakeRig, missing: str) -> None:
    """The database refuses the result for now; no other host may take its job meanwhile."""
    rig = make_rig(lease_s=30.0, heartbeat_s=0.2)
    submission = rig.submit()
    job = rig.claim(lease_s=0.1)
    assert rig.spool.put(job, accepted(), slot="cpu0")
    slow = rig.evaluator = Slow()
    if missing == "the container engine":
        rig.engine.up.clear()
    # To complete a job, its submission must be locked.
    with rig.locked("SELECT FROM leaderboard.submission FOR UPDATE"):
        rig.start(ready=False)
        rig.wait_for(lambda: slow.begun.is_set() or rig.waiting_for == missing, "it waits for what is missing")
        renewed = f"SELECT FROM {JOBS} WHERE lease_expires_at > started_at + interval '31.5 seconds'"
        rig.wait_for(lambda: rig.sql(renewed), "it is renewed, again and again")
        assert list(rig.store.reclaim()) == []
    assert (rig.done(submission).attempt, rig.evaluator.seen) == (1, [])
    slow.go.set()


def test_a_spooled_result_is_delivered_while_the_engine_is_down(make_rig: MakeRig) -> None:
    """Nothing of it needs an engine. What else ran is given back meanwhile, and frontends hear of it."""
    rig = make_rig(lease_s=3600.0)
    spooled, left = rig.submit(), rig.submit()
    job, _ = (rig.claim() for _ in range(2))
    assert rig.spool.put(job, accepted(found="before"), slot="cpu0")
    rig.engine.up.clear()
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("LISTEN runner_events")
        rig.start(ready=False)
        done = rig.done(spooled)
        rig.wait_for(lambda: rig.waiting_for == "the container engine", "it waits for the engine only")
        heard = [json.loads(note.payload) for note in connection.notifies(timeout=PATIENCE_S, stop_after=2)]
    assert (done.attempt, done.report) == (1, {"found": "before"})
    assert sorted((event["event"], event["submission_id"]) for event in heard) == [("done", spooled), ("queued", left)]
    assert (rig.engine.reaped, rig.evaluator.seen) == (0, [])
    rig.engine.up.set()
    rig.wait_done(left)
    assert rig.engine.reaped == 1


def test_two_daemons_do_not_share_a_name(make_rig: MakeRig) -> None:
    """The second one says so and waits, and takes nothing of the first one's; it serves when the first has gone."""
    first, second = make_rig(), make_rig()
    second.instance = "another state directory"
    first.start()
    with capture_logs() as logs:
        second.start(ready=False)
        second.wait_for(lambda: second.waiting_for == "the host name", "it noticed")
        second.wait_for(lambda: any("reason" in line for line in logs), "it says so")
        (reason,) = [line["reason"] for line in logs if "reason" in line]
        assert "host name 'test-host' belongs to another daemon" in reason
        first.wait_done(first.submit())
        assert first.stop() == 0
        assert second.daemon is not None
        assert second.daemon.readiness.ready.wait(PATIENCE_S)
    second.wait_done(second.submit())


def test_a_daemon_that_never_had_the_name_does_not_say_goodbye_in_it(make_rig: MakeRig) -> None:
    """Stopped while it waits for the name, it leaves the other daemon's row alone."""
    first, second = make_rig(), make_rig()
    second.instance = "another state directory"
    first.start()
    second.start(ready=False)
    second.wait_for(lambda: second.waiting_for == "the host name", "it noticed")
    assert second.stop() == 0
    assert first.sql("SELECT stopped_at FROM runner.host") == [{"stopped_at": None}]


def test_a_name_that_was_taken_during_an_outage_is_not_acted_in(make_rig: MakeRig, proxy: Proxy) -> None:
    """Cut off for long enough, a daemon finds another one under its name: the jobs that run in it are not its own."""
    rig = make_rig(daemon_url=proxy.url)
    proxy.open()
    rig.start()
    proxy.shut()
    rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
    rig.sql("UPDATE runner.host SET instance = 'another state directory', last_seen = now()")
    submission = rig.submit()
    rig.claim()
    proxy.open()
    rig.wait_for(lambda: rig.waiting_for == "the host name", "it noticed that, too")
    assert rig.job(submission).state is JobState.RUNNING


def test_a_job_that_its_daemons_die_of_is_not_run_for_ever(make_rig: MakeRig) -> None:
    """Four processes died with it, and so did the fifth: the sixth ends it, and serves the next."""
    rig = make_rig(lease_s=3600.0)
    deadly = rig.submit()
    rig.claim()
    rig.sql("UPDATE runner.job SET reclaims = 4")
    harmless = rig.submit()
    rig.start()
    assert rig.done(deadly).verdict is Verdict.INTERNAL_ERROR
    assert [job_id for job_id, _, _ in rig.evaluator.seen] == [rig.done(harmless).id]
