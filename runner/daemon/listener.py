"""Turns the database's notifications into wake-ups of the claiming thread and the heartbeat.

Polling goes on all the time, so an outage here only makes the daemon slower.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from runner.base.errors import InfrastructureError
from runner.base.logs import LogRateLimit, get_logger
from runner.base.retry import Backoff
from runner.daemon.interfaces import StoreFactory
from runner.store import Stop, Wakeup

_log = get_logger(__name__)

#: About so many hosts react to one notification of work, however many there are. One job needs one host. A thousand
#: claims at once are slow for all, and the other hosts poll soon: one of a thousand does within two milliseconds.
MAX_REACTING_HOSTS: Final = 12
#: They react one after the other, about so long apart: the first claim is over before the next one begins.
_APART_S: Final = 0.003
#: The longest wait for a notification; after it the listener simply waits again.
_LISTEN_S = 30.0
_random = random.Random()  # noqa: S311 - not for secrets


def should_react(rivals: int) -> bool:
    """Whether this host, one of so many, reacts to a notification of work."""
    return rivals <= MAX_REACTING_HOSTS or _random.random() * rivals < MAX_REACTING_HOSTS


def reaction_delay_s(rivals: int) -> float:
    """How long this host, one of so many, waits before it reacts: none if it is the only one."""
    return _random.uniform(0.0, (min(rivals, MAX_REACTING_HOSTS) - 1) * _APART_S)


class QueueListener:
    """`run` is the body of the listening thread.

    `on_work` is called when there may be a job of one of `gpu_types`. `on_host_notice` is called when a notification
    names this host: one of its jobs shall stop, or its drain state has changed. `rivals` is how many hosts get the same
    notifications, this one included.
    """

    def __init__(
        self,
        store_factory: StoreFactory,
        *,
        host: str,
        gpu_types: frozenset[str],
        rivals: Callable[[], int],
        on_work: Callable[[], None],
        on_host_notice: Callable[[], None],
    ) -> None:
        self._store_factory = store_factory
        self._host = host
        self._gpu_types = gpu_types
        self._rivals = rivals
        self._on_work = on_work
        self._on_host_notice = on_host_notice

    def run(self, stop: Stop) -> None:
        """Listen until `stop` is set. A broken connection is opened again, and counts as a wake-up."""
        store = self._store_factory("listen")
        backoff = Backoff(cap_s=5.0)
        log_limit = LogRateLimit()
        logged = False
        try:
            while not stop.is_set():
                try:
                    wakeup = store.listen(stop=stop, timeout_s=_LISTEN_S)
                except InfrastructureError as error:
                    if backoff.failures == 0 and (left_out := log_limit.due("outage")) is not None:
                        _log.warning("listening_failed", error=str(error), left_out=left_out)
                        logged = True
                    backoff.wait(stop)
                    continue
                if logged:
                    _log.info("listening_recovered")
                    logged = False
                backoff.reset()
                if wakeup is not None:
                    self._dispatch(wakeup, stop)
        finally:
            store.close()

    def _dispatch(self, wakeup: Wakeup, stop: Stop) -> None:
        if wakeup.all_hosts or self._host in wakeup.hosts:
            self._on_host_notice()
        if wakeup.all_hosts or not self._gpu_types.isdisjoint(wakeup.gpu_types):
            stop.wait(reaction_delay_s(self._rivals()))
            self._on_work()
