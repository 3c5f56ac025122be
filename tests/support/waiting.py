"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

#: What has not happened by then never will: it only ends what hangs, and no test is faster or slower for it. At a load
#: of 200 on two cores, as machines for continuous integration have it, six seconds of a core take ten minutes.
PATIENCE_S = 600.0
_PAUSE_S = 0.01

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S, explain: Callable[[], str] = lambda: ""
) -> T:
    """Ask again and again until the answer is true; that answer.

    Args:
        condition: the question.
        what: the condition in words, for the failure.
        patience_s: how long to wait at most, in seconds.
        explain: called when that time is over; text for the failure.

    Raises:
        AssertionError: the condition was never true.
    """
    deadline_s = time.monotonic() + patience_s
    while not (answer := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"never happened: {what} {explain()}".rstrip())
        time.sleep(_PAUSE_S)
    return answer
