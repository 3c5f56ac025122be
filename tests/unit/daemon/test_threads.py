"""Threads that are kept alive and ended together."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from runner.base import retry
from runner.daemon.threads import ThreadSupervisor
from tests.support.waiting import PATIENCE_S


def test_a_body_that_breaks_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause, and the log says which; one that ends by itself has ended."""
    monkeypatch.setattr(retry, "MIN_S", 0.0)
    monkeypatch.setattr(retry.Backoff, "next_s", lambda _self: 0.0)
    threads = ThreadSupervisor()
    lives: list[int] = []
    over = threading.Event()

    def body(_halt: threading.Event) -> None:
        lives.append(1)
        if len(lives) < 3:
            raise ZeroDivisionError("a bug")
        over.set()

    with capture_logs() as logs:
        threads.spawn("x", body)
        assert over.wait(PATIENCE_S)
        threads.halt.set()
        threads.join(PATIENCE_S)
    assert len(lives) == 3
    assert [line["thread"] for line in logs] == ["x"], "said once a minute"
