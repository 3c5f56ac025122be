"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

#: What has not happened by then never will: it only ends what hangs, and no test is faster or slower for it. At a load
#: of 200 on two cores, as machines for continuous integration have it, six seconds of a core take ten minutes.
PATIENCE_S = 600.0
#: Between two questions: at first, and at most. A question may be a connection and a query, which take most of a core
#: when asked a hundred times a second; after a second's wait a twentieth more matters to no test.
_PAUSE_S, _LONGEST_PAUSE_S, _SHARE = 0.01, 0.1, 0.05

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    patience_s: float = PATIENCE_S,
    pause_s: float | None = None,
    explain: Callable[[], str] = lambda: "",
) -> T:
    """Ask again and again until the answer is true; that answer.

    Args:
        condition: the question.
        what: the condition in words, for the failure.
        patience_s: how long to wait at most, in seconds.
        pause_s: between two questions, in seconds; by default the longer, the longer it takes.
        explain: called when that time is over; text for the failure.

    Raises:
        AssertionError: the condition was never true.
    """
    began_s = time.monotonic()
    while not (answer := condition()):
        waited_s = time.monotonic() - began_s
        if waited_s > patience_s:
            raise AssertionError(f"never happened: {what} {explain()}".rstrip())
        time.sleep(pause_s or min(max(_PAUSE_S, waited_s * _SHARE), _LONGEST_PAUSE_S))
    return answer
