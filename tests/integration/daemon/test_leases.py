"""Who holds a job: a daemon whose loop stalls, that stood still, whose claim was never answered, that died."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
from structlog.testing import capture_logs
from structlog.typing import EventDict

from runner.base.errors import DatabaseUnavailableError
from runner.base.model import JobState, Json, Verdict
from runner.store import Claims
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import JOBS, MakeRig, Rig, cpu_slots
from tests.integration.daemon.stores import watch
from tests.support.waiting import PATIENCE_S

#: Beats have renewed the lease for longer than a second since the claim; no heartbeat is late for a lease of 30 s.
RENEWED = f"SELECT FROM {JOBS} WHERE state = 'running' AND lease_expires_at > started_at + interval '31.5 seconds'"
EXPIRED = f"SELECT FROM {JOBS} WHERE state = 'running' AND lease_expires_at < now()"


def test_a_stalled_loop_loses_no_lease(make_rig: MakeRig) -> None:
    """The claim hangs and beats go on: the heartbeat has a thread and a connection of its own."""
    rig = make_rig(lease_s=30.0, heartbeat_s=0.2)
    seen = watch(rig)
    gate, submission = rig.begin()
    seen.gate.clear()
    assert seen.waiting.wait(PATIENCE_S)
    rig.wait_for(lambda: rig.sql(RENEWED), "it is renewed, again and again")
    assert list(rig.store.reclaim()) == []
    gate.go.set()
    job = rig.done(submission)
    assert (job.verdict, job.attempt) == (Verdict.ACCEPTED, 1)
    seen.gate.set()


def test_a_process_that_stood_still_stops_what_it_lost(make_rig: MakeRig, make_process: Callable[..., Process]) -> None:
    """SIGSTOP for longer than a lease: another host runs the job; after SIGCONT the first one's run is stopped."""
    rig = make_rig(host_name="other-host")
    process = make_process(heartbeat_s=0.2)
    submission = rig.submit()
    process.expect("begun")
    process.child.send_signal(signal.SIGSTOP)
    rig.start()

    def taken_over() -> bool:
        # Again and again: what it sent before it stood still may arrive afterwards.
        rig.expire_leases()
        return rig.job(submission).state is JobState.DONE

    rig.wait_for(taken_over, "the lease expired, and the other host has run the job")
    process.child.send_signal(signal.SIGCONT)
    process.expect("cancelled")
    job = rig.job(submission)
    assert (job.verdict, job.attempt, job.host, len(job.runs)) == (Verdict.ACCEPTED, 2, "other-host", 1)
    assert job.failures == 0


def test_a_claim_whose_answer_was_lost_costs_seconds_and_not_a_lease(make_rig: MakeRig) -> None:
    """It was committed, its answer was lost, and its lease lasts an hour: the daemon releases it and claims again."""
    rig = make_rig(lease_s=3600.0)
    rig.slots = cpu_slots(2)
    seen = watch(rig)
    gate, kept = rig.begin()

    def lose(claims: Claims) -> Claims:
        if claims.jobs:
            seen.answer = lambda claims: claims
            raise DatabaseUnavailableError("the connection broke after the commit")
        return claims

    seen.answer = lose
    with capture_logs() as logs, psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("LISTEN runner_events")
        lost = rig.submit()
        rig.wait_for(lambda: len(rig.evaluator.seen) == 2, "claimed again")
        told: list[Json] = []
        for note in connection.notifies(timeout=PATIENCE_S):
            told.append(json.loads(note.payload))
            if told[-1]["event"] == "queued":
                break
        assert (told[-1]["event"], told[-1]["submission_id"]) == ("queued", lost)
        gate.go.set()
        jobs = [rig.done(each) for each in (kept, lost)]
    assert [(job.verdict, job.attempt) for job in jobs] == [(Verdict.ACCEPTED, 1), (Verdict.ACCEPTED, 2)]
    assert [line["count"] for line in logs if line["event"] == "unacknowledged_claims_released"] == [1]


def test_a_dead_hosts_job_is_reclaimed_and_announced_although_every_other_host_is_busy(rig: Rig) -> None:
    """Polling goes on with nothing to offer; frontends hear that the job is queued again, hosts that there is work."""
    gate, _ = rig.begin()
    dead = rig.submit()
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("LISTEN runner_events")
        connection.execute("LISTEN runner_queue")
        rig.claim(host="dead", lease_s=0.1)
        rig.wait_for(lambda: rig.job(dead).state is JobState.QUEUED, "reclaimed")
        events: list[Json] = []
        woken: list[str] = []
        # Notifications about the other run may come between them.
        for note in connection.notifies(timeout=PATIENCE_S):
            if note.channel == "runner_queue":
                woken.append(note.payload)
            elif (event := json.loads(note.payload))["submission_id"] == dead:
                events.append(event)
            if events and woken:
                break
    assert [(event["event"], event["submission_done"]) for event in events] == [("queued", False)]
    assert set(woken) == {"CPU"}
    gate.go.set()
    job = rig.done(dead)
    assert (job.attempt, job.failures) == (2, 0)


def test_leases_get_time_to_be_renewed_after_an_outage(make_rig: MakeRig) -> None:
    """No daemon reclaims within a lease's time of an outage: the holders of expired leases were cut off as well."""
    rig = make_rig(lease_s=3.0)
    seen = watch(rig)
    with capture_logs() as logs:
        rig.start()
        seen.gate.clear()
        assert seen.waiting.wait(PATIENCE_S)
        rig.submit()
        rig.claim(host="other", lease_s=0.1)
        rig.wait_for(lambda: rig.sql(EXPIRED), "the other's lease expired")

        def away(_claims: Claims) -> Claims:
            seen.answer = lambda claims: claims
            raise DatabaseUnavailableError("away")

        seen.answer = away
        seen.gate.set()
        rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
        rig.wait_for(lambda: seen.reclaims, "it reclaims in the end")
        # It counts before it asks, and says what came of it afterwards.
        rig.wait_for(lambda: [line["event"] for line in logs].count("job_reclaimed") == 1, "one was taken back")
    # It registers when the database is back, and again only when it has been away.
    assert seen.reclaimed_s - seen.registered_s >= rig.config.lease_s


def put_forward(logs: Sequence[EventDict]) -> list[float]:
    """By how much the clock was put forward, as each daemon says."""
    return [line["by_s"] for line in logs if line["event"] == "database_clock_jumped"]


def test_a_servers_clock_that_is_put_forward_costs_no_run(make_rig: MakeRig) -> None:
    """By an hour: every lease is over at once. A daemon that notices the jump gives the holders time to renew them."""
    runs, looks = (make_rig(host_name=name, lease_s=30.0, heartbeat_s=2.5) for name in ("runs", "looks"))
    seen = [watch(rig) for rig in (runs, looks)]
    with capture_logs() as logs:
        gate, submission = runs.begin()
        looks.start()
        for one in seen:
            one.gate.clear()
            assert one.waiting.wait(PATIENCE_S)
            # The server's own clock is left alone: what it says is put forward, and what was stored by it is put back.
            one.answer = lambda claims: replace(claims, now_s=(claims.now_s or 0.0) + 3600.0)
        runs.sql("UPDATE runner.job SET lease_expires_at = lease_expires_at - interval '1 hour'")
        runs.sql("UPDATE runner.lease SET expires_at = expires_at - interval '1 hour'")
        for one in seen:
            one.gate.set()
        settled = f"SELECT FROM {JOBS} WHERE lease_expires_at > now() OR attempt > 1 OR state <> 'running'"
        runs.wait_for(lambda: runs.sql(settled), "it is renewed, or taken away")
        runs.wait_for(lambda: len(put_forward(logs)) == len(seen), "both have seen it")
    gate.go.set()
    job = runs.done(submission)
    assert (job.verdict, job.attempt, job.host, len(job.runs)) == (Verdict.ACCEPTED, 1, "runs", 1)
    # A lower bound: what the answer may have taken is left out of it.
    assert all(3600 - PATIENCE_S < by_s <= 3601 for by_s in put_forward(logs))


def test_leases_get_time_to_be_renewed_by_a_daemon_that_started_in_the_outage(make_rig: MakeRig, proxy: Proxy) -> None:
    """It was not there when the leases expired, but it knows why they did."""
    rig = make_rig(daemon_url=proxy.url, lease_s=4.0)
    rig.submit()
    rig.claim(host="other", lease_s=0.1)
    seen = watch(rig)
    proxy.open()
    proxy.hang_up()
    rig.start(ready=False)
    rig.wait_for(lambda: rig.waiting_for == "the database", "it noticed")
    rig.wait_for(lambda: rig.sql(EXPIRED), "the other's lease expired")
    proxy.answer()
    rig.wait_for(lambda: seen.reclaims, "it reclaims in the end")
    assert seen.reclaimed_s - seen.registered_s >= rig.config.lease_s


def test_leases_get_time_to_be_renewed_after_everything_stood_still(make_rig: MakeRig) -> None:
    """A claim that took half a lease and then worked: the server was frozen, and every host's heartbeat with it."""
    rig = make_rig(lease_s=1.0, heartbeat_s=0.2)
    seen = watch(rig)
    rig.start()
    seen.gate.clear()
    assert seen.waiting.wait(PATIENCE_S)
    rig.submit()
    rig.claim(host="other", lease_s=0.6)
    rig.wait_for(lambda: rig.sql(EXPIRED), "the other's lease expired")
    before = seen.reclaims
    began = rig.sql("SELECT now() AS now")[0]["now"]
    seen.gate.set()
    rig.wait_for(lambda: seen.reclaims > before, "it reclaims in the end")
    waited = rig.sql("SELECT extract(epoch FROM now() - %(began)s)::float8 AS s", began=began)[0]["s"]
    assert waited >= rig.config.lease_s


def test_a_daemon_whose_name_was_taken_while_it_stood_still_lets_go(rig: Rig) -> None:
    """No error tells it: its next claim does. Its run ends as lost; it claims nothing until the name is free again."""
    seen = watch(rig)
    gate, first = rig.begin()
    with capture_logs() as logs:
        rig.sql("UPDATE runner.host SET instance = 'another state directory'")
        assert gate.cancelled.wait(PATIENCE_S)
        rig.wait_for(lambda: rig.waiting_for == "the host name", "it noticed")
        second = rig.submit()
        owner = rig.sql("SELECT last_seen, instance FROM runner.host")
        asked = seen.registers
        rig.wait_for(lambda: seen.registers > asked, "it asked again")
        assert rig.job(second).state is JobState.QUEUED
        assert rig.job(first).state is JobState.RUNNING, "what runs in a name is its owner's to give back"
        assert rig.sql("SELECT last_seen, instance FROM runner.host") == owner
        gate.go.set()
        rig.sql("UPDATE runner.host SET last_seen = now() - interval '2 minutes'")
        jobs = [rig.done(each) for each in (first, second)]
    assert [(job.verdict, job.attempt) for job in jobs] == [(Verdict.ACCEPTED, 2), (Verdict.ACCEPTED, 1)]
    (said,) = [line["reason"] for line in logs if line.get("waiting_for") == "the host name"]
    assert "belongs to another daemon: expected instance instance of test-host, found another state" in said


def test_a_job_that_cannot_be_read_ends_and_delays_no_other(rig: Rig) -> None:
    """As after a downgrade: with the cause and at most three attempts; frontends hear of it."""
    odd = rig.submit(priority=5)
    rig.sql("ALTER TABLE runner.job DROP CONSTRAINT job_mode_check")
    rig.sql("UPDATE runner.job SET mode = 'dream'")
    fine = rig.submit()
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("LISTEN runner_events")
        rig.start()
        rig.wait_done(fine)

        def hurried() -> bool:
            rig.sql("UPDATE runner.job SET not_before = NULL WHERE state = 'queued'")
            return bool(rig.sql("SELECT FROM runner.job WHERE state = 'done' AND submission_id = %(odd)s", odd=odd))

        rig.wait_for(hurried, "it is over")
        events = []
        for note in connection.notifies(timeout=PATIENCE_S):
            events.append(json.loads(note.payload))
            if events[-1].get("verdict") == "internal_error":
                break
    assert [event["event"] for event in events if event["submission_id"] == odd] == ["queued", "queued", "done"]
    (job,) = rig.sql("SELECT verdict, attempt, error FROM runner.job WHERE submission_id = %(odd)s", odd=odd)
    assert (job["verdict"], job["attempt"]) == ("internal_error", 3)
    assert job["error"].endswith("the job cannot be read: 'dream' is not a valid Mode")
