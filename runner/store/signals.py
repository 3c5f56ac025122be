"""Notifications: daemons are woken, frontends are told. Nothing relies on them; listeners poll as well.

NOTIFY takes a lock of the whole cluster until its transaction has committed. So claims, results and whatever else ends
an attempt send nothing, and are announced after their commit; only progress goes with the small write it tells of.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Sequence
from typing import Final

from runner.base.model import Json
from runner.store.base import Base
from runner.store.connection import rows
from runner.store.queries import QUERIES
from runner.store.records import Wakeup

_QUEUE: Final = "runner_queue"
_HOSTS: Final = "runner_hosts"
#: So long an answer to LISTEN is waited for.
LISTEN_ANSWER_S: Final = 10.0
#: A payload has at most 7,999 bytes.
_MAX_PAYLOAD_BYTES: Final = 7900


class Stop(threading.Event):
    """An event that can be waited for together with a connection."""

    def __init__(self) -> None:
        super().__init__()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """A descriptor that is readable from `set` on."""
        return self._descriptor

    def set(self) -> None:
        """End all waits, for good."""
        super().set()
        os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Not possible: what was told to stop has stopped."""
        raise NotImplementedError("a stop is for good; make another one")


class Signals(Base):
    """The part of a store that sends and hears notifications."""

    def announce(self, *, events: Sequence[Json] = (), wake: Sequence[str] = ()) -> None:
        """Tell frontends what happened, and wake the daemons that serve these GPU types.

        All of it is one transaction, so the cluster's lock is taken once; it does not wait for the disk.
        """
        payload = ",".join(sorted(set(wake)))
        if events or wake:
            parameters = {
                "events": json.dumps(list(events)),
                "work": (payload if len(payload.encode()) <= _MAX_PAYLOAD_BYTES else "") if wake else None,
            }
            self._link.all(QUERIES["notify"], parameters)

    def listen(self, *, stop: Stop, timeout_s: float) -> Wakeup | None:
        """Wait for a wake-up until nothing comes for `timeout_s` seconds; all that is pending is one.

        The connection is the store's second one. If it subscribed only now, it wakes every listener, because a
        notification may have been missed. None: nothing came, or `stop` was set.
        """
        with self._listener.open(answer_s=LISTEN_ANSWER_S) as connection:
            if not connection.listens:
                rows(connection, QUERIES["listen_queue"])
                rows(connection, QUERIES["listen_hosts"])
                connection.listens = True
                return Wakeup(all_hosts=True)
            poll = select.poll()
            for source in (connection, stop):
                poll.register(source.fileno(), select.POLLIN)
            # Before the first wait, too: something may have come with the answer to a statement. And not all that comes
            # is a notification.
            while not (connection.heard or stop.is_set()) and poll.poll(timeout_s * 1e3):
                connection.hear()
            heard = [(note.channel, note.payload) for note in connection.heard]
            connection.heard.clear()
        return _wakeup(heard) if heard else None


def _wakeup(heard: Sequence[tuple[str, str]]) -> Wakeup:
    names: dict[str, set[str]] = {_QUEUE: set(), _HOSTS: set()}
    for channel, payload in heard:
        names[channel].update(payload.split(","))
    return Wakeup(
        gpu_types=frozenset(names[_QUEUE] - {""}),
        hosts=frozenset(names[_HOSTS] - {""}),
        all_hosts="" in names[_QUEUE] | names[_HOSTS],
    )
