"""What a daemon is told: no order is lost to another one that comes at the same moment."""

from __future__ import annotations

import threading

from runner.daemon.shutdown import ShutdownControl
from tests.support.waiting import PATIENCE_S


def test_a_stop_during_a_reload_is_not_taken_back() -> None:
    """A reload that wants nothing new lets the daemon go on, unless it was told to stop between the two steps."""
    control = ShutdownControl()
    stopping = threading.Thread(target=control.request_stop)

    class Interrupted(threading.Event):
        def is_set(self) -> bool:
            found = super().is_set()
            if not found:
                stopping.start()
                # Time enough to get in between.
                stopping.join(0.2)
            return found

    control.stop = Interrupted()
    control.request_rebuild(None)
    stopping.join(PATIENCE_S)
    assert control.stop_claiming.is_set()
