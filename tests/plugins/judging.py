"""Judges and workers for tests, forked from two processes of a run that have imported torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.judging.nursery import Nursery, nursery


@pytest.fixture(scope="session")
def processes() -> Iterator[Nursery]:
    """Judges and workers that are forked, not started: fresh processes without the seconds that importing takes."""
    with nursery() as made:
        yield made
