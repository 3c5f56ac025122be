"""Wake-ups by notification: heard at once, once, by whom they concern, and again after the connection broke.

Polls are five minutes apart here: whatever happens soon was announced.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.base.model import JobState
from tests.integration.daemon.rig import MakeRig, Rig, cpu_slots
from tests.integration.daemon.stores import Watch, notify, watch
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def slow(make_rig: MakeRig) -> Rig:
    """A rig that hardly ever polls and hardly ever beats."""
    return make_rig(poll_s=300.0, lease_s=3600.0, heartbeat_s=1200.0)


def counting(rig: Rig, *, rivals: int | None = None) -> Watch:
    """Watch a rig's claims. With `rivals` each claim says that there are that many hosts.

    No claim says that a sweep is overdue. After two minutes without a sweep a claim says so, and the daemon claims once
    more, at a random time within a second, before it reclaims.
    """
    seen = watch(rig)
    seen.answer = lambda claims: replace(claims, overdue=False, rivals=rivals or claims.rivals)
    return seen


def settled(rig: Rig, seen: Watch, mark: str) -> int:
    """How many claims there were after the listener has acted on everything sent so far."""
    rig.wait_for(lambda: seen.heard, "it listens")
    notify(rig, "runner_queue", mark)
    rig.wait_for(lambda: any(mark in wakeup.gpu_types for wakeup in seen.heard), f"heard {mark}")
    if seen.gate.is_set():
        assert rig.daemon is not None
        wake = rig.daemon._wake
        # Not only cleared: the claim that follows may not have begun.
        at_rest = vars(wake)["_cond"]
        rig.wait_for(lambda: not wake.is_set() and at_rest._waiters, "what was heard has been looked at")
    return seen.claims


def heed(rig: Rig, seen: Watch, channel: str, payload: str) -> None:
    """Send a notification, and wait for the claim that follows."""
    before = seen.claims
    notify(rig, channel, payload)
    rig.wait_for(lambda: seen.claims > before, f"{channel} {payload!r} was heeded")


def test_a_job_is_heard_of_after_the_listeners_connection_was_ended(slow: Rig) -> None:
    """LISTEN is restored, and what was announced meanwhile is not lost."""
    slow.start()
    slow.wait_done(slow.submit())
    listener = (
        "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'daemon listen listen'"
    )
    for _ in range(2):
        slow.wait_for(lambda: slow.sql(listener), "it listens, and no more")
        slow.wait_done(slow.submit())


def test_only_what_concerns_this_host_costs_a_claim(slow: Rig) -> None:
    """Other GPU types and other hosts are none of its business; its own types, itself and everybody are."""
    seen = counting(slow)
    slow.start()
    before = settled(slow, seen, "mark-0")
    notify(slow, "runner_queue", "H100,B200")
    notify(slow, "runner_hosts", "other-host,third-host")
    assert settled(slow, seen, "mark-1") == before
    for channel, payload in (("runner_queue", "H100,CPU"), ("runner_queue", ""), ("runner_hosts", "x,test-host")):
        heed(slow, seen, channel, payload)


def test_a_burst_of_notifications_costs_one_claim_and_none_is_missed(slow: Rig) -> None:
    """What is announced while a claim runs is looked at once after it; then the daemon rests."""
    seen = counting(slow)
    slow.start()
    settled(slow, seen, "mark-0")
    seen.gate.clear()
    notify(slow, "runner_queue", "CPU")
    assert seen.waiting.wait(PATIENCE_S)
    before = seen.claims
    submission = slow.submit()
    notify(slow, "runner_queue", *["CPU"] * 50)
    settled(slow, seen, "mark-1")
    seen.gate.set()
    slow.wait_done(submission)
    # The claim that waited, one for the burst, one because the slot came free.
    slow.wait_for(lambda: seen.claims >= before + 2, "it looked again")
    assert settled(slow, seen, "mark-2") <= before + 3


def test_in_a_crowd_few_busy_hosts_act_on_an_announcement(slow: Rig) -> None:
    """One job needs one host: of a billion hardly any looks, but for what is told to this one or to everybody."""
    seen = counting(slow, rivals=10**9)
    slow.slots = cpu_slots(2)
    gate, submission = slow.begin()
    before = settled(slow, seen, "mark-0")
    notify(slow, "runner_queue", *["CPU"] * 5)
    assert settled(slow, seen, "mark-1") == before
    for channel, payload in (("runner_hosts", "test-host"), ("runner_queue", "")):
        heed(slow, seen, channel, payload)
    gate.go.set()
    slow.wait_done(submission)


def test_a_cancel_request_is_announced_and_heard_at_once(slow: Rig) -> None:
    """The heartbeat is twenty minutes away."""
    gate, submission = slow.begin()
    assert slow.store.cancel(submission) == 1
    job = slow.done(submission)
    assert gate.cancelled.is_set()
    assert (job.state, job.verdict, job.failures) == (JobState.CANCELLED, None, 0)
