"""The `bench` fixture, over every shipped problem unless a test names some."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.taskdef import load_folder
from tests.plugins.torch_threads import one_thread
from tests.unit.problems.bench import Bench
from tests.unit.problems.oracle import NAMES, TASKS

__all__ = ["bench", "one_thread"]


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each shipped problem, unpacked as the judge unpacks it."""
    made = Bench(folder=load_folder(TASKS / request.param), directory=tmp_path)
    made.unpack()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made.forget()
    yield made
    made.forget()
