"""What a daemon is told: no order is lost to another one that comes at the same moment."""

from __future__ import annotations

import threading

from runner.daemon.shutdown import Orders


def test_a_stop_during_a_reload_is_not_taken_back() -> None:
    """A reload that wants nothing new lets the daemon go on, unless it was told to stop between the two steps."""
    orders = Orders()
    stopping = threading.Thread(target=orders.ask_stop)

    class Interrupted(threading.Event):
        def is_set(self) -> bool:
            found = super().is_set()
            if not found:
                stopping.start()
                # Time enough to get in between.
                stopping.join(0.2)
            return found

    orders.stop = Interrupted()
    orders.ask_rebuild(None)
    stopping.join(30)
    assert orders.leave.is_set()
