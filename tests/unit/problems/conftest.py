"""The `bench` fixture, over every shipped problem unless a test names some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.torch_threads import one_thread
from tests.unit.problems.bench import Bench, unpacked
from tests.unit.problems.oracle import NAMES

__all__ = ["bench", "one_thread"]


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each shipped problem, unpacked as the judge unpacks it."""
    with unpacked(request.param, tmp_path, monkeypatch) as made:
        yield made
