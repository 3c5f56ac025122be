"""Fixtures of the pipeline's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import chat
from tests.integration.extras.trainers.kernelbook.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """An endpoint."""
    made = Service(log=tmp_path / "endpoint.log")
    made.log.touch()
    with chat.endpoint(made.answer) as made.url:
        yield made
