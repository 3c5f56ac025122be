"""The hourly removal of what is old."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from typing import Any, cast
from unittest.mock import Mock, call

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError
from runner.daemon.housekeeping import BATCH, Housekeeper
from runner.store import Reaped, Store


def _tidy(*answers: int | Exception) -> tuple[Mock, list[MutableMapping[str, Any]]]:
    """Tidy once, with a store that removes as many artifacts, batch by batch, and keeps things for two days."""
    batches = [
        answer
        if isinstance(answer, Exception)
        else Reaped(artifacts=answer, stale_results=0, events=min(answer, 1), hosts=0, shares=0)
        for answer in answers
    ]
    store = Mock(reap=Mock(side_effect=batches))
    with capture_logs() as logs:
        Housekeeper(lambda _purpose: cast("Store", store), Config(retention_days=2.0)).tidy(threading.Event())
    return store, logs


def test_batches_are_removed_until_one_is_empty() -> None:
    """Everything old is gone in the end, on a connection that is closed again; a short batch is not the last one."""
    store, logs = _tidy(BATCH, 4, BATCH - 1, 0)
    assert store.reap.call_args_list == [call(keep_s=2 * 86400.0, limit=BATCH)] * 4
    store.close.assert_called_once_with()
    assert [(line["artifacts"], line["events"]) for line in logs] == [(2 * BATCH + 3, 3)]


@pytest.mark.parametrize("error", [DatabaseUnavailableError("away"), ZeroDivisionError("a bug")])
def test_a_failure_is_logged_and_harms_nothing(error: Exception) -> None:
    """There is a next time."""
    store, logs = _tidy(error)
    assert [line["event"] for line in logs] == ["housekeeping_failed"]
    store.close.assert_called_once_with()
