"""Judges and workers for tests, forked from processes that have imported torch, one a role and a process of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges


@pytest.fixture(scope="session")
def processes() -> Iterator[ForkedJudges]:
    """Judges and workers that are forked, not started: fresh processes without the seconds that importing takes."""
    with closing(ForkedJudges()) as made:
        yield made
