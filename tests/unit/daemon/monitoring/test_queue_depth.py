"""How often the database is asked for the length of the queue, and what is said when it does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError
from runner.daemon.monitoring import queue_depth
from runner.daemon.monitoring.queue_depth import KEPT_S, STALE_S, QueueDepthCache
from runner.store import QueueDepth, Store
from tests.support.waiting import PATIENCE_S, wait_until

SOME = [QueueDepth(gpu_type="CPU", jobs=3, oldest_s=1.5)]


class Database:
    """Answers as the test says, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = 0
        self.answer: Callable[[], Sequence[QueueDepth]] = lambda: SOME
        self.now_s = 0.0

    def store(self, purpose: str) -> Store:
        """A connection."""
        assert purpose == "metrics"
        self.open += 1
        return cast("Store", self)

    def queue_depths(self) -> Sequence[QueueDepth]:
        """The statement."""
        self.asked += 1
        return self.answer()

    def close(self) -> None:
        """The end of the connection."""
        self.open -= 1


@pytest.fixture
def database() -> Database:
    """A database."""
    return Database()


@pytest.fixture
def queue_depths(database: Database, monkeypatch: pytest.MonkeyPatch) -> QueueDepthCache:
    """What is asked, on the test's clock; the answer is waited for."""
    monkeypatch.setattr(queue_depth, "WAIT_S", PATIENCE_S)
    return QueueDepthCache(database.store, clock=lambda: database.now_s)


def away() -> Any:  # noqa: ANN401 - never returns
    """The database is not there."""
    raise DatabaseUnavailableError("gone")


def test_a_minute_costs_one_statement(database: Database, queue_depths: QueueDepthCache) -> None:
    """However often it is scraped; the connection is closed in between."""
    for _ in range(10):
        assert queue_depths.get() == SOME
    assert (database.asked, database.open) == (1, 0)
    database.now_s += KEPT_S
    assert queue_depths.get() == SOME
    assert database.asked == 2


def test_an_old_answer_is_not_given_for_ever(database: Database, queue_depths: QueueDepthCache) -> None:
    """An outage of minutes is bridged, and then nothing is known; one line of the log says so."""
    assert queue_depths.get() == SOME
    database.answer = away
    with capture_logs() as logs:
        database.now_s += STALE_S - 1
        assert queue_depths.get() == SOME
        database.now_s += KEPT_S
        assert queue_depths.get() is None
    assert [line["event"] for line in logs] == ["queue_depth_unknown"]
    database.answer = list
    database.now_s += KEPT_S
    assert queue_depths.get() == []


def test_a_silent_database_delays_no_request_for_long(
    database: Database, queue_depths: QueueDepthCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks gets what is known, and no second question is under way."""
    monkeypatch.setattr(queue_depth, "WAIT_S", 0.01)
    let_go = threading.Event()

    def hang() -> Sequence[QueueDepth]:
        let_go.wait(PATIENCE_S)
        return SOME

    database.answer = hang
    assert queue_depths.get() is None
    assert queue_depths.get() is None
    wait_until(lambda: database.asked, "the question is under way")
    assert database.asked == 1
    let_go.set()
