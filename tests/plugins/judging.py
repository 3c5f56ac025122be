"""Judges and workers for tests, forked from processes that have imported torch, one a role and a process of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.judging.nursery import Nursery, nursery


@pytest.fixture(scope="session")
def processes() -> Iterator[Nursery]:
    """Judges and workers that are forked, not started: fresh processes without the seconds that importing takes."""
    with nursery() as made:
        yield made
