"""What becomes of a spooled result: committed, evidence, or dropped; and who holds its lease meanwhile."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError
from runner.daemon.outcomes.replay import PATIENCE_S
from runner.store import Store
from tests.support.waiting import PATIENCE_S as WAIT_S
from tests.unit.daemon.fakes import Parts
from tests.unit.daemon.outcomes.samples import job, result


def deliver(parts: Parts) -> int:
    """One round."""
    store: Store = parts.fake("test")
    return parts.replayer.replay_once(store)


def accept(parts: Parts, *job_ids: int) -> None:
    """Spool a result of each of these jobs."""
    for job_id in job_ids:
        assert parts.replayer.accept(job(job_id), result(b"trace", n=job_id), slot="cpu0")


def test_results_are_committed_in_order_and_forgotten(parts: Parts) -> None:
    """Each once, with its event after the commit, and its lease is let go."""
    accept(parts, 3, 1, 2)
    assert parts.held() == {(1, False), (2, False), (3, False)}
    assert parts.replayer.keys() == [(3, 2), (1, 2), (2, 2)]
    assert deliver(parts) == 3
    assert parts.store.completed == [(job_id, result(b"trace", n=job_id)) for job_id in (3, 1, 2)]
    assert parts.events() == ["done"] * 3
    assert (parts.held(), parts.spool.count, deliver(parts)) == (set(), 0, 0)


def test_a_database_that_goes_away_in_between_loses_nothing(parts: Parts) -> None:
    """What was committed is not committed again, what was not waits on and stays held."""
    accept(parts, 1, 2, 3)

    def fail_at_the_second() -> None:
        if parts.store.completed:
            parts.store.away.set()

    parts.store.meanwhile = fail_at_the_second
    with pytest.raises(DatabaseUnavailableError):
        deliver(parts)
    assert parts.replayer.keys() == [(2, 2), (3, 2)]
    assert parts.held() == {(2, False), (3, False)}
    parts.store.meanwhile = lambda: None
    parts.store.away.clear()
    assert deliver(parts) == 2
    assert [job_id for job_id, _ in parts.store.completed] == [1, 2, 3]


def test_a_result_of_another_database_is_dropped(parts: Parts) -> None:
    """Where there is no such job no table could keep the evidence: the log has the reason."""
    parts.store.gone = {1}
    accept(parts, 1, 2)
    with capture_logs() as logs:
        assert deliver(parts) == 1
    assert (parts.spool.count, parts.held(), parts.events()) == (0, set(), ["done"])
    (said,) = [line for line in logs if line["log_level"] == "error"]
    assert "this database has no such job" in said["reason"]


@pytest.mark.parametrize("meanwhile", ["away", "over"])
def test_a_refused_result_waits_until_its_job_can_be_failed(parts: Parts, meanwhile: str) -> None:
    """The database goes away between the refusal and the failure: both are tried again. None is failed that is over."""
    parts.store.refused = {1}
    accept(parts, 1)

    def before_the_failure() -> None:
        if parts.store.calls == 2 and meanwhile == "away":
            parts.store.away.set()
        elif parts.store.calls == 2:
            parts.store.stale = {1}

    parts.store.meanwhile = before_the_failure
    if meanwhile == "away":
        with pytest.raises(DatabaseUnavailableError):
            deliver(parts)
        assert (parts.spool.count, parts.held()) == (1, {(1, False)})
        parts.store.away.clear()
    assert deliver(parts) == 0
    assert len(parts.store.failed) == (meanwhile == "away")
    assert (parts.spool.count, parts.held()) == (0, set())


def test_a_result_that_the_database_never_takes_delays_no_other_and_is_given_up(parts: Parts) -> None:
    """It takes too long each time, or a lock is held: the others are delivered; some day its job is failed."""
    parts.store.slow = {1}
    accept(parts, 1, 2)
    for _ in range(100):
        with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
            deliver(parts)
        parts.now_s += PATIENCE_S / 101
    assert [job_id for job_id, _ in parts.store.completed] == [2]
    assert (parts.replayer.keys(), parts.held(), parts.store.failed) == ([(1, 2)], {(1, False)}, [])
    parts.now_s += PATIENCE_S / 50
    with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
        deliver(parts)
    cause = "the result could not be committed: canceling statement due to statement timeout"
    assert parts.store.failed == [(1, cause, "cpu0")]
    assert (parts.spool.count, parts.held(), deliver(parts)) == (0, set(), 0)


def test_an_outage_is_nothing_that_a_result_is_given_up_for(parts: Parts) -> None:
    """However long it lasts."""
    parts.store.away.set()
    accept(parts, 1)
    for _ in range(100):
        with pytest.raises(DatabaseUnavailableError, match="connection refused"):
            deliver(parts)
        parts.now_s += PATIENCE_S
    parts.store.away.clear()
    assert deliver(parts) == 1


def test_a_result_delivered_while_it_is_accepted_leaves_no_lease_behind(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery may be quicker than the slot that hands over."""
    put = parts.spool.put

    def put_and_deliver(*arguments: object, **named: object) -> bool:
        kept = put(*arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        deliver(parts)
        return kept

    monkeypatch.setattr(parts.spool, "put", put_and_deliver)
    accept(parts, 1)
    assert (parts.spool.count, parts.held(), len(parts.store.completed)) == (0, set(), 1)


@pytest.mark.parametrize("how", ["removed by hand", "damaged"])
def test_the_lease_of_a_result_that_is_gone_is_let_go(parts: Parts, how: str) -> None:
    """Its job must not look as if it ran for ever: the lease expires, and another host evaluates it again."""
    accept(parts, 1, 2)
    path = parts.spool.pending()[0].path
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    parts.store.away.set()
    stop = threading.Event()
    thread = threading.Thread(target=parts.replayer.run, args=(stop,))
    thread.start()
    try:
        while parts.held() != {(2, False)}:
            assert thread.is_alive()
            parts.replayer.nudge()
    finally:
        stop.set()
        parts.replayer.nudge()
        thread.join(WAIT_S)
    assert not thread.is_alive()
