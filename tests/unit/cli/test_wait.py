"""Waiting for a verdict, with a clock that the test moves."""

from __future__ import annotations

from itertools import chain, repeat
from unittest.mock import Mock

import pytest

from runner.base.errors import DatabaseUnavailableError, MissingRightError
from runner.base.model import JobState
from runner.cli.view import ShownSubmission, from_store
from runner.cli.wait import LAST_INTERVAL_S, OUTAGE_S, wait_until
from tests.support.clock import Clock
from tests.unit.cli import samples


class Pausing(Clock):
    """Time that passes only during pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now_s += seconds


def _view(state: JobState) -> ShownSubmission:
    return from_store(samples.submission(samples.job(state=state), line=samples.status(state=state)), admin=False)


def _wait(clock: Pausing, said: list[str], *answers: ShownSubmission | Exception) -> ShownSubmission | None:
    """Look until nothing more will happen: one answer after the other, the last again and again."""
    return wait_until(
        Mock(side_effect=chain(answers, repeat(answers[-1]))),
        lambda view: view.over,
        show=lambda _: None,
        explain=said.append,
        clock=clock,
        pause=clock.pause,
    )


def test_an_outage_of_the_database_is_explained_and_survived() -> None:
    """The waiting goes on, at one look a second, and ends when the database is back with a verdict."""
    clock, said = Pausing(), list[str]()
    away = DatabaseUnavailableError("connection refused")
    view = _wait(clock, said, _view(JobState.RUNNING), away, away, _view(JobState.DONE))
    assert view is not None
    assert len(said) == 2
    assert "connection refused" in said[0]
    assert clock.pauses[1:] == [LAST_INTERVAL_S, LAST_INTERVAL_S]


def test_an_outage_that_does_not_end_is_reported() -> None:
    """After half an hour the error is the caller's; a right that is missing at once: waiting would not bring it."""
    clock, said = Pausing(), list[str]()
    began_s = clock.now_s
    with pytest.raises(MissingRightError):
        _wait(clock, said, MissingRightError("permission denied for table submission"))
    assert (said, clock.pauses) == ([], [])
    with pytest.raises(DatabaseUnavailableError):
        _wait(clock, said, DatabaseUnavailableError("gone"))
    assert clock.now_s - began_s == pytest.approx(OUTAGE_S, abs=2 * LAST_INTERVAL_S)
