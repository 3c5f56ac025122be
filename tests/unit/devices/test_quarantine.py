"""Slots whose container will not go: out at once, back by themselves."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from runner.devices.quarantine import Quarantine
from runner.evaluation.leftovers import keep_out
from sandbox.errors import EngineRefused
from tests.support.waiting import PATIENCE_S, wait_until


class Stuck:
    """A container that goes when it is let."""

    def __init__(self, name: str) -> None:
        self.id = name * 20
        self.go = threading.Event()
        self.tried = threading.Semaphore(0)

    def close(self) -> None:
        """Refuse until let."""
        self.tried.release()
        if not self.go.is_set():
            raise EngineRefused("still there")


def test_a_slot_is_out_until_its_last_container_is_gone() -> None:
    """The reason names the container and what the engine said; each change is told, each event logged once."""
    quarantine = Quarantine(retry_s=0.001)
    changes = threading.Semaphore(0)
    quarantine.on_change = changes.release
    one, other = Stuck("a"), Stuck("b")
    with capture_logs() as logs:
        keep_out("cpu0", one, EngineRefused("it hangs"), quarantine)
        keep_out("cpu0", other, EngineRefused("it hangs too"), quarantine)
        assert quarantine.reasons() == {
            "cpu0": "container aaaaaaaaaaaa could not be removed: it hangs; "
            "container bbbbbbbbbbbb could not be removed: it hangs too"
        }
        for _ in range(2):
            assert changes.acquire(timeout=PATIENCE_S)
        for _ in range(3):
            assert one.tried.acquire(timeout=PATIENCE_S)
        one.go.set()
        assert changes.acquire(timeout=PATIENCE_S)
        assert "bbbbbbbbbbbb" in quarantine.reasons()["cpu0"]
        assert "aaaaaaaaaaaa" not in quarantine.reasons()["cpu0"]
        other.go.set()
        assert changes.acquire(timeout=PATIENCE_S)
    assert quarantine.reasons() == {}
    assert [line["event"] for line in logs] == ["slot_quarantined"] * 2 + ["slot_container_gone"] * 2
    assert [line.get("free") for line in logs][2:] == [False, True]


def test_a_slot_is_not_out_for_good_because_of_a_thread_or_a_broken_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host may have no thread left for a moment, and a look may raise anything."""
    quarantine = Quarantine(retry_s=0.001)
    mended = Mock(side_effect=[KeyError("message"), False, True])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        quarantine.quarantine_runs("cpu0", "no space left on device", mended=mended)
        assert quarantine.reasons() == {"cpu0": "nothing runs there: no space left on device"}
    with capture_logs() as logs:
        wait_until(lambda: not quarantine.reasons(), "the slot is used again")
    assert [line["event"] for line in logs] == ["slot_retry_failed", "slot_works"]
