"""What all tests of the command line need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_again() -> Iterator[None]:
    """Undo what `main` does to the log, whose stream ends with the test."""
    yield
    structlog.reset_defaults()
