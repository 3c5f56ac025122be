"""How often the database is asked for the length of the queue, and what is said when it does not answer."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError
from runner.daemon.monitoring import queue_depth
from runner.daemon.monitoring.queue_depth import KEPT_S, STALE_S, QueueDepthCache
from runner.store import QueueDepth
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S, wait_until

SOME = [QueueDepth(gpu_type="CPU", jobs=3, oldest_s=1.5)]


@pytest.fixture
def database() -> Mock:
    """A connection to a database that knows of some jobs."""
    return Mock(queue_depths=Mock(return_value=SOME))


@pytest.fixture
def clock() -> Clock:
    """The test's clock."""
    return Clock()


@pytest.fixture
def queue_depths(database: Mock, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> QueueDepthCache:
    """What is asked; the answer is waited for."""
    monkeypatch.setattr(queue_depth, "WAIT_S", PATIENCE_S)
    return QueueDepthCache({"metrics": database}.__getitem__, clock=clock)


def test_a_minute_costs_one_statement(database: Mock, clock: Clock, queue_depths: QueueDepthCache) -> None:
    """However often it is scraped; the connection is closed in between."""
    for _ in range(10):
        assert queue_depths.get() == SOME
    assert (database.queue_depths.call_count, database.close.call_count) == (1, 1)
    clock.now_s += KEPT_S
    assert queue_depths.get() == SOME
    assert database.queue_depths.call_count == 2


def test_an_old_answer_is_not_given_for_ever(database: Mock, clock: Clock, queue_depths: QueueDepthCache) -> None:
    """An outage of minutes is bridged, and then nothing is known; one line of the log says so."""
    assert queue_depths.get() == SOME
    database.queue_depths.side_effect = DatabaseUnavailableError("gone")
    with capture_logs() as logs:
        clock.now_s += STALE_S - 1
        assert queue_depths.get() == SOME
        clock.now_s += KEPT_S
        assert queue_depths.get() is None
    assert [line["event"] for line in logs] == ["queue_depth_unknown"]
    database.queue_depths.side_effect = list
    clock.now_s += KEPT_S
    assert queue_depths.get() == []


def test_a_silent_database_delays_no_request_for_long(
    database: Mock, queue_depths: QueueDepthCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks gets what is known, and no second question is under way."""
    monkeypatch.setattr(queue_depth, "WAIT_S", 0.01)
    let_go = threading.Event()
    database.queue_depths.side_effect = lambda: let_go.wait(PATIENCE_S) and SOME
    assert queue_depths.get() is None
    assert queue_depths.get() is None
    wait_until(lambda: database.queue_depths.called, "the question is under way")
    assert database.queue_depths.call_count == 1
    let_go.set()
