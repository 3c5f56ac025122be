"""What is missing at start, and what goes away during a run: the engine, the database, its schema, its connections."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from runner.base.errors import DiskFullError, EngineUnavailableError, EvaluationError
from runner.base.model import JobState, Verdict
from runner.store import claims, migrate
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, Gate, MakeRig, Rig, at_once, fails
from tests.integration.daemon.stores import watch
from tests.support.waiting import PATIENCE_S

CONNECTED = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = %(name)s"


def said(logs: Sequence[EventDict], event: str, **fields: str) -> int:
    """How often an event with these fields was logged."""
    return sum(line["event"] == event and fields.items() <= line.items() for line in logs)


def test_without_an_engine_the_daemon_says_so_once_and_waits(rig: Rig) -> None:
    """Nothing is claimed before it answers, and then everything goes on by itself."""
    rig.engine.up.clear()
    submission = rig.submit()
    with capture_logs() as logs:
        rig.start(ready=False)
        rig.wait_for(lambda: rig.engine.checks >= 2, "it asked twice")
        assert rig.waiting_for == "the container engine"
        assert said(logs, "not_ready", waiting_for="the container engine") == 1
        assert [line["reason"] for line in logs if "reason" in line] == ["no engine at unix:///nowhere; start it"]
        assert rig.job(submission).state is JobState.QUEUED
        rig.engine.up.set()
        rig.wait_done(submission)
        assert said(logs, "available_now", what="the container engine") == 1


def test_without_a_database_the_daemon_says_so_once_and_waits(make_rig: MakeRig, proxy: Proxy) -> None:
    """It starts by itself when the database comes, having tried no more than once a second."""
    rig = make_rig(daemon_url=proxy.url)
    submission = rig.submit()
    proxy.open()
    proxy.hang_up()
    with capture_logs() as logs:
        began_s = time.monotonic()
        rig.start(ready=False)
        rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
        rig.wait_for(lambda: proxy.knocks >= 3, "it tried again")
        assert proxy.knocks <= time.monotonic() - began_s + 1
        proxy.answer()
        rig.wait_done(submission)
    assert said(logs, "not_ready", waiting_for="the database") == 1
    assert said(logs, "available_now", what="the database") == 1


def test_without_its_schema_the_daemon_names_the_command_and_waits(make_rig: MakeRig, empty_database_url: str) -> None:
    """An operator who forgot `migrate` is told, and need not restart anything."""
    rig = make_rig(database=empty_database_url, board=False)
    with capture_logs() as logs:
        rig.start(ready=False)
        rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
        migrate(empty_database_url)
        assert rig.daemon is not None
        assert rig.daemon.readiness.ready.wait(PATIENCE_S)
    (reason,) = [line["reason"] for line in logs if "reason" in line]
    assert "has no schema 'runner'" in reason
    assert "run `kernel-runner migrate`" in reason


def test_a_run_survives_the_end_of_every_database_connection(rig: Rig) -> None:
    """pg_terminate_backend in the middle of a run: the job is completed by its first attempt."""
    gate, submission = rig.begin()
    # Claim, which listens too, and heartbeat: the last is opened once something is held.
    killed = 0

    def both_are_killed() -> bool:
        nonlocal killed
        killed += rig.kill_connections()
        return killed >= 2

    rig.wait_for(both_are_killed, "claim and heartbeat have been cut off")
    gate.go.set()
    job = rig.done(submission)
    assert (job.verdict, job.attempt, job.failures, len(job.runs)) == (Verdict.ACCEPTED, 1, 0, 1)
    rig.wait_done(rig.submit())


def a_run_with_a_heartbeat(rig: Rig, proxy: Proxy) -> tuple[Gate, int]:
    """A daemon behind a proxy whose only run has begun and is kept alive; its gate, its submission."""
    proxy.open()
    gate, submission = rig.begin()
    # Not only connected: a connection that is cut off while it is being made fails in another way.
    beaten = CONNECTED + " AND state = 'idle' AND query LIKE '%%runner.heartbeat(%%'"
    rig.wait_for(lambda: rig.sql(beaten, name="daemon heartbeat"), "the run is kept alive")
    return gate, submission


def test_an_unanswered_heartbeat_is_sent_again_in_time(make_rig: MakeRig, proxy: Proxy) -> None:
    """Its connection alone leads nowhere, and nothing says so: it is given up long before the lease is over."""
    rig = make_rig(daemon_url=proxy.url, lease_s=30.0, heartbeat_s=0.5)
    with capture_logs() as logs:
        gate, submission = a_run_with_a_heartbeat(rig, proxy)
        assert proxy.silence("daemon heartbeat") == 1
        began = rig.sql("SELECT now() AS now")[0]["now"]
        renewed = f"SELECT FROM {JOBS} WHERE lease_expires_at > %(began)s + interval '31 seconds'"
        rig.wait_for(lambda: rig.sql(renewed, began=began), "it is renewed all the same")
        gate.go.set()
        job = rig.done(submission)
    assert (job.verdict, job.attempt) == (Verdict.ACCEPTED, 1)
    assert said(logs, "heartbeat_failing", error="PostgreSQL: the server did not answer within 6 s") == 1
    assert said(logs, "heartbeat_failing") == 1


def test_an_unanswered_claim_is_sent_again(make_rig: MakeRig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the host has been silent for so long that its name is free."""
    assert claims.CLAIM_ANSWER_S < 60 / 2
    monkeypatch.setattr(claims, "CLAIM_ANSWER_S", 10.0)
    rig = make_rig(daemon_url=proxy.url)
    proxy.open()
    rig.start()
    assert proxy.silence("daemon claim") == 1
    assert rig.done(rig.submit()).verdict is Verdict.ACCEPTED


def test_a_cancelled_or_failed_job_waits_for_the_database_too(make_rig: MakeRig, proxy: Proxy) -> None:
    """Not only results: an attempt that failed while the database was away is recorded as failed."""
    rig = make_rig(daemon_url=proxy.url, lease_s=60.0)
    proxy.open()
    gate = Gate()

    def script(*arguments: object) -> None:
        gate(*arguments)  # type: ignore[arg-type]  # passed on as they came
        raise OSError("the disk is full")

    rig.evaluator.script = script  # type: ignore[assignment]  # it never returns
    submission = rig.submit()
    with capture_logs() as logs:
        rig.start()
        assert gate.begun.wait(PATIENCE_S)
        proxy.shut()
        gate.go.set()
        rig.wait_for(lambda: said(logs, "database_away_job_end_waits"), "the write failed")
        proxy.open()
        rig.wait_for(lambda: rig.job(submission).failures == 1, "the failure is recorded")
    assert rig.job(submission).error == "unexpected OSError: the disk is full"


def test_a_host_without_an_engine_lives_all_the_same(rig: Rig) -> None:
    """It takes no jobs until the engine is back, but it shows that it is there and takes back what a dead host held."""
    seen = watch(rig)
    rig.evaluator.script = fails(EngineUnavailableError("the engine went away"), before=rig.engine.up.clear)
    rig.start()
    submission = rig.submit()
    rig.wait_for(lambda: rig.waiting_for == "the container engine", "it noticed")
    rig.evaluator.script = at_once
    held = rig.submit()
    rig.claim(host="dead", lease_s=0.1)
    rig.wait_for(lambda: rig.job(held).state is JobState.QUEUED, "the dead host's job is taken back")
    before = seen.claims
    rig.wait_for(lambda: seen.claims >= before + 2, "it has claimed again, and no job")
    assert len(rig.evaluator.seen) == 1
    rig.engine.up.set()
    rig.sql("UPDATE runner.job SET not_before = NULL")
    views = rig.wait_done(submission, held)
    assert [view.jobs[0].failures for view in views] == [1, 0]


def test_a_host_that_has_lost_what_containers_are_made_of_takes_no_more_jobs(rig: Rig) -> None:
    """One job finds out; the others wait until all is there again."""

    def lose() -> None:
        rig.evaluator.gone = "no such image"

    rig.evaluator.script = fails(EvaluationError("the engine refused"), before=lose)
    rig.start()
    submissions = rig.submit(), rig.submit()
    rig.wait_for(lambda: rig.waiting_for == "the evaluation environment", "it noticed")
    rig.evaluator.script = at_once
    assert len(rig.evaluator.seen) == 1
    rig.evaluator.gone = None
    rig.sql("UPDATE runner.job SET not_before = NULL")
    assert sorted(view.jobs[0].failures or 0 for view in rig.wait_done(*submissions)) == [0, 1]


@pytest.mark.parametrize("from_start", [True, False], ids=["from the start", "later"])
@pytest.mark.parametrize("lack", ["engine", "environment", "disk"])
def test_what_a_host_lacks_stands_beside_its_name_until_it_is_there(rig: Rig, lack: str, *, from_start: bool) -> None:
    """Else a host that takes no jobs looks like one that does: to operators, to those who wait, and to finals."""
    full = 0

    def check_disk() -> None:
        nonlocal full
        full += bool(full)
        if full:
            raise DiskFullError(f"{full} bytes free")

    def lose() -> None:
        nonlocal full
        if lack == "engine":
            rig.engine.up.clear()
        elif lack == "environment":
            rig.evaluator.gone = "no such image"
        else:
            full = 1

    def mend() -> None:
        nonlocal full
        full, rig.evaluator.gone = 0, None
        rig.engine.up.set()

    def reason() -> object:
        (host,) = rig.store.hosts()
        return [slot.get("quarantined") for slot in host.slots], host.gpu_types

    rig.check_disk = check_disk
    if from_start:
        lose()
        rig.start(ready=False)
    else:
        rig.start()
        lose()
    why = {"engine": "no engine at unix:///nowhere; start it", "environment": "no such image", "disk": "2 bytes free"}
    rig.wait_for(lambda: rig.store.hosts() and reason() == ([why[lack]], ()), "the list of hosts says what is missing")
    waits = rig.submit()
    assert rig.view(waits).status.no_host_since is not None
    before = full
    rig.wait_for(lambda: lack != "disk" or full > before + 2, "the figures have changed")
    assert reason() == ([why[lack]], ())
    mend()
    rig.wait_done(waits)
    rig.wait_for(lambda: reason() == ([None], ("CPU",)), "the type is back")
