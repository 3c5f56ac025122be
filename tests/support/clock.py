"""A clock that the test moves."""

from __future__ import annotations


class Clock:
    """Stands in for `time.monotonic`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s
