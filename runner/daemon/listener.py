"""Turns the database's notifications into wake-ups of the loop and of the lease keeper.

Owns the connection that listens. Polling goes on all the time, so a silent outage only slows the daemon down.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from runner.daemon.interfaces import StoreFactory
from runner.errors import InfrastructureError
from runner.logs import Sparing, get_logger
from runner.retry import Backoff
from runner.store import Stop, Wakeup

_log = get_logger(__name__)

#: About so many hosts act on one announcement of work, however many hear it. One job needs one of them; a thousand
#: claims at once are slow for everybody, and the polls of the others come soon.
CROWD: Final = 32
#: How long one wait for a notification may be; the end of it is no event.
_LISTEN_S = 30.0


def takes_part(rivals: int) -> bool:
    """Whether this one of so many hosts acts on an announcement of work."""
    return rivals <= CROWD or secrets.randbelow(rivals) < CROWD


class Wakeups:
    """`run` is the body of the listening thread.

    `on_work` is called when there may be a job of one of `gpu_types`, `on_told` when the host itself was meant: a job
    of it shall stop, or it shall drain or not.
    """

    def __init__(
        self,
        store_factory: StoreFactory,
        *,
        host: str,
        gpu_types: frozenset[str],
        on_work: Callable[[], None],
        on_told: Callable[[], None],
    ) -> None:
        self._store_factory = store_factory
        self._host = host
        self._gpu_types = gpu_types
        self._on_work = on_work
        self._on_told = on_told

    def run(self, stop: Stop) -> None:
        """Listen until `stop` is set; a connection that breaks is opened again, and counts as a wake-up."""
        store = self._store_factory("listen")
        backoff = Backoff(cap_s=5.0)
        sparing = Sparing()
        said = False
        try:
            while not stop.is_set():
                try:
                    wakeup = store.listen(stop=stop, timeout_s=_LISTEN_S)
                except InfrastructureError as error:
                    if backoff.failures == 0 and (left_out := sparing.due("outage")) is not None:
                        _log.warning("not listening for new jobs; polling goes on", error=str(error), left_out=left_out)
                        said = True
                    backoff.wait(stop)
                    continue
                if said:
                    _log.info("listening for new jobs again")
                    said = False
                backoff.reset()
                if wakeup is not None:
                    self._pass_on(wakeup)
        finally:
            store.close()

    def _pass_on(self, wakeup: Wakeup) -> None:
        if wakeup.everybody or self._host in wakeup.hosts:
            self._on_told()
        if wakeup.everybody or not self._gpu_types.isdisjoint(wakeup.gpu_types):
            self._on_work()
