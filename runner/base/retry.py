"""How long to wait before the next attempt. Pure, but for the waiting.

Owns the one back-off rule: exponential with full jitter, and at most one attempt a second.
"""

from __future__ import annotations

import random
import threading

#: A loop tries at most once a second; a fleet that lost its database must not storm it.
MIN_S = 1.0
#: The bound of the first wait, in seconds.
FIRST_S = 2.0
#: Random numbers only spread load here; asking the kernel for each would let go of the interpreter's lock.
_random = random.Random()  # noqa: S311 - not for secrets


class Backoff:
    """The waits of one outage. Not threadsafe: one per loop."""

    def __init__(self, *, cap_s: float = 15.0) -> None:
        self._cap_s = max(cap_s, MIN_S)
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure: between MIN_S and a bound that doubles up to `cap_s`."""
        bound_s = min(self._cap_s, FIRST_S * 2 ** min(self.failures, 16))
        self.failures += 1
        return _random.uniform(MIN_S, max(MIN_S, bound_s))

    def reset(self) -> None:
        """An attempt worked."""
        self.failures = 0

    def wait(self, stop: threading.Event) -> bool:
        """Wait after one more failure; True: `stop` was set meanwhile."""
        return stop.wait(self.next_s())


def between_s(low_s: float, high_s: float) -> float:
    """A pause between the two, so that hosts started together do not act together."""
    return _random.uniform(low_s, high_s)
