"""What tests of a daemon's parts stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.daemon.fakes import Parts


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Everything around a slot worker, a writer or a replayer; nothing is spooled."""
    return Parts(tmp_path)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A back-off of no time that still counts."""

    def next_s(backoff: object) -> float:
        backoff.failures += 1  # type: ignore[attr-defined]  # stands in for a method
        return 0.001

    monkeypatch.setattr("runner.base.retry.Backoff.next_s", next_s)
