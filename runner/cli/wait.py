"""Waits until a row of the database says that something is over, also through outages (`--wait`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from runner.base.errors import DatabaseUnavailableError, MissingRightError

#: Seconds between two looks: short at first, since tiny runs take less than a second; then easy on the database.
FIRST_INTERVAL_S = 0.2
LAST_INTERVAL_S = 1.0
_INTERVAL_GROWTH = 1.1
#: Seconds a database may be away before the waiting gives up; the daemon holds results for as long.
OUTAGE_S = 1800.0

_View = TypeVar("_View")


def wait_until(
    look: Callable[[], _View],
    over: Callable[[_View], bool],
    *,
    show: Callable[[_View], None],
    explain: Callable[[str], None],
    timeout_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> _View | None:
    """Look again and again until nothing more will happen.

    Args:
        look: asks the database.
        over: whether this view is the last.
        show: gets every view, for the progress line.
        explain: gets a sentence when the database is away.
        timeout_s: seconds after which to give up; None waits for as long as it takes.
        clock: monotonic seconds.
        pause: waits so many seconds; None waits for real, and Ctrl-C interrupts it.

    Returns:
        The final view, or None when the time was up.

    Raises:
        DatabaseUnavailableError: the database has been away for half an hour, or its user lacks a right.
        NotFoundError: what is looked at is gone.
    """
    pause = pause or threading.Event().wait
    started = clock()
    interval_s = FIRST_INTERVAL_S
    away_since: float | None = None
    while True:
        try:
            view = look()
        except MissingRightError:
            raise
        except DatabaseUnavailableError as error:
            away_since = clock() if away_since is None else away_since
            if clock() - away_since >= OUTAGE_S:
                raise
            explain(f"the database is away, trying again: {error}")
            interval_s = LAST_INTERVAL_S
        else:
            away_since = None
            if over(view):
                return view
            show(view)
        left_s = None if timeout_s is None else timeout_s - (clock() - started)
        if left_s is not None and left_s <= 0:
            return None
        pause(interval_s if left_s is None else min(interval_s, left_s))
        interval_s = min(interval_s * _INTERVAL_GROWTH, LAST_INTERVAL_S)
