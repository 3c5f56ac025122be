"""Waiting for a verdict, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from runner.base.errors import DatabaseUnavailableError, MissingRightError
from runner.base.model import JobState
from runner.cli.view import ShownSubmission, from_store
from runner.cli.wait import LAST_INTERVAL_S, OUTAGE_S, wait_until
from tests.unit.cli import samples


class Clock:
    """Time that passes only during pauses."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now_s += seconds


def _view(state: JobState) -> ShownSubmission:
    return from_store(samples.submission(samples.job(state=state), line=samples.status(state=state)), admin=False)


def _answers(*answers: ShownSubmission | Exception) -> Callable[[], ShownSubmission]:
    """Gives one answer after the other and repeats the last."""
    rest: Iterator[ShownSubmission | Exception] = iter(answers)
    last = [answers[-1]]

    def look() -> ShownSubmission:
        answer = next(rest, last[0])
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def _over(view: ShownSubmission) -> bool:
    """Whether nothing more will happen to it."""
    return view.over


def _ignore(_: object) -> None:
    """Explain nothing."""


def test_an_outage_of_the_database_is_explained_and_survived() -> None:
    """The waiting goes on, at one look a second, and ends when the database is back with a verdict."""
    clock, said = Clock(), list[str]()
    away = DatabaseUnavailableError("connection refused")
    view = wait_until(
        _answers(_view(JobState.RUNNING), away, away, _view(JobState.DONE)),
        _over,
        show=_ignore,
        explain=said.append,
        clock=clock,
        pause=clock.pause,
    )
    assert view is not None
    assert len(said) == 2
    assert "connection refused" in said[0]
    assert clock.pauses[1:] == [LAST_INTERVAL_S, LAST_INTERVAL_S]


def test_a_right_that_is_missing_is_no_outage() -> None:
    """It is said at once: waiting would not bring it."""
    clock, said = Clock(), list[str]()
    look = _answers(MissingRightError("permission denied for table submission"))
    with pytest.raises(MissingRightError):
        wait_until(look, _over, show=_ignore, explain=said.append, clock=clock, pause=clock.pause)
    assert (said, clock.pauses) == ([], [])


def test_an_outage_that_does_not_end_is_reported() -> None:
    """After half an hour the error is the caller's."""
    clock = Clock()
    with pytest.raises(DatabaseUnavailableError):
        wait_until(
            _answers(DatabaseUnavailableError("gone")),
            _over,
            show=_ignore,
            explain=_ignore,
            clock=clock,
            pause=clock.pause,
        )
    assert clock.now_s - 100.0 == pytest.approx(OUTAGE_S, abs=2 * LAST_INTERVAL_S)
