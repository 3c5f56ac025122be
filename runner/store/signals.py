"""Notifications: daemons are woken, frontends are told. Nothing relies on them; listeners poll as well.

NOTIFY takes a lock of the whole cluster until its transaction has committed. So claims, results and whatever else ends
an attempt send nothing, and are announced after their commit; only progress goes with the small write it tells of.
"""

from __future__ import annotations

import json
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from runner.model import Json
from runner.store import queries
from runner.store.base import Base, expect
from runner.store.connection import rows
from runner.store.records import ServerState, Wakeup

_QUEUE: Final = "runner_queue"
_HOSTS: Final = "runner_hosts"
#: So long an answer to LISTEN is waited for. The claiming thread waits as long for the connection.
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


class _Flag:
    """Something that is set by one thread and waited for by another, together with a connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """A descriptor that is readable from `set` to `clear`."""
        return self._descriptor

    def set(self) -> None:
        """Wake the thread that waits, if the flag is not closed."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Forget what was set."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; `set` does nothing afterwards."""
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1


class Signals(Base):
    """The part of a store that sends and hears notifications."""

    def announce(self, *, events: Sequence[Json] = (), wake: Sequence[str] = ()) -> None:
        """Tell frontends what happened, and wake the daemons that serve these GPU types.

        All of it is one transaction, so the cluster's lock is taken once; it does not wait for the disk.
        """
        told = ",".join(sorted(set(wake)))
        if events or wake:
            parameters = {
                "events": json.dumps(list(events)),
                "work": (told if len(told.encode()) <= _MAX_PAYLOAD_BYTES else "") if wake else None,
            }
            self._link.all(queries.NOTIFY, parameters)

    def server_state(self) -> ServerState:
        """What the whole server does that slows the queue down."""
        return ServerState(**expect(self._link.one(queries.SERVER_STATE)))

    def listen(self, *, stop: Stop, timeout_s: float, wanted: Callable[[], bool] = lambda: True) -> Wakeup | None:
        """Wait for a wake-up at most `timeout_s` seconds; all that is pending is one.

        The connection is the store's second one, or that of another store (`listen_with`). If it subscribed only now,
        it wakes every listener, because a notification may have been missed. None: nothing came, or `stop` was set.

        `wanted` is asked at first and whenever the other store has used its connection. As long as it says no, it is
        not subscribed: each notification costs the server a wake-up of every session that is.
        """
        link = self._listener
        deadline_s = time.monotonic() + timeout_s
        used = _Flag()
        self._watched.on_used(used.set)
        try:
            while not stop.is_set():
                used.clear()
                sources: list[_Flag | Stop | int] = [used, stop]
                if wanted():
                    with link.open(answer_s=LISTEN_ANSWER_S, listener=True) as connection:
                        if not connection.listens:
                            rows(connection, queries.LISTEN_QUEUE)
                            rows(connection, queries.LISTEN_HOSTS)
                            connection.listens = True
                            return Wakeup(all_hosts=True)
                        # Before the first wait too: something may have come with the answer to an earlier statement.
                        # Exhausted at once: a suspended generator would keep the connection's lock.
                        heard = list(connection.notifies(timeout=0))
                        sources.append(connection.fileno())
                    if heard:
                        return _wakeup([(note.channel, note.payload) for note in heard])
                elif link.listens:
                    self._unsubscribe()
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    break
                with selectors.DefaultSelector() as selector:
                    for source in sources:
                        selector.register(source, selectors.EVENT_READ)
                    selector.select(remaining_s)
        finally:
            self._watched.on_used(None)
            used.close()
        return None

    def _unsubscribe(self) -> None:
        if not self._borrowed:
            self._listener.close()
            return
        with self._listener.open(answer_s=LISTEN_ANSWER_S, listener=True) as connection:
            rows(connection, queries.UNLISTEN)
            connection.listens = False


def _wakeup(heard: Sequence[tuple[str, str]]) -> Wakeup:
    names: dict[str, set[str]] = {_QUEUE: set(), _HOSTS: set()}
    for channel, payload in heard:
        names[channel].update(payload.split(","))
    return Wakeup(
        gpu_types=frozenset(names[_QUEUE] - {""}),
        hosts=frozenset(names[_HOSTS] - {""}),
        all_hosts="" in names[_QUEUE] | names[_HOSTS],
    )
