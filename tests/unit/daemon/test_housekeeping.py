"""The hourly removal of what is old."""

from __future__ import annotations

import threading
from typing import cast

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError
from runner.daemon.housekeeping import BATCH, Housekeeper
from runner.store import Reaped, Store


class FakeStore:
    """Removes as many as the test says, batch by batch."""

    def __init__(self, *artifacts: int, error: Exception | None = None) -> None:
        self.left = list(artifacts)
        self.error = error
        self.calls: list[tuple[float, int]] = []
        self.called = threading.Event()
        self.closed = 0

    def reap(self, *, keep_s: float, limit: int) -> Reaped:
        """Remember and answer."""
        self.calls.append((keep_s, limit))
        self.called.set()
        if self.error is not None:
            raise self.error
        artifacts = self.left.pop(0)
        return Reaped(artifacts=artifacts, stale_results=0, events=min(artifacts, 1), hosts=0, shares=0)

    def close(self) -> None:
        """Remember."""
        self.closed += 1


def housekeeper(store: FakeStore) -> Housekeeper:
    """One that keeps things for two days."""
    return Housekeeper(lambda _purpose: cast("Store", store), Config(retention_days=2.0))


def test_batches_are_removed_until_one_is_empty() -> None:
    """Everything old is gone in the end, on a connection that is closed again; a short batch is not the last one."""
    store = FakeStore(BATCH, 4, BATCH - 1, 0)
    with capture_logs() as logs:
        housekeeper(store).tidy(threading.Event())
    assert store.calls == [(2 * 86400.0, BATCH)] * 4
    assert store.closed == 1
    assert [(line["artifacts"], line["events"]) for line in logs] == [(2 * BATCH + 3, 3)]


@pytest.mark.parametrize("error", [DatabaseUnavailableError("away"), ZeroDivisionError("a bug")])
def test_a_failure_is_logged_and_harms_nothing(error: Exception) -> None:
    """There is a next time."""
    store = FakeStore(error=error)
    with capture_logs() as logs:
        housekeeper(store).tidy(threading.Event())
    assert [line["event"] for line in logs] == ["housekeeping_failed"]
    assert store.closed == 1
