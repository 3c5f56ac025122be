"""Notifications: daemons are woken, frontends are told. Nothing relies on them; listeners poll as well.

NOTIFY takes a lock of the whole cluster until its transaction has committed. So claims, results and whatever else ends
an attempt send nothing, and are announced after their commit; only progress goes with the small write it tells of.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from runner.base.model import Json
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


class _Wait:
    """What the listening thread waits for: a stop, another look, what comes on a connection that is also another's.

    `look` says, when the other thread has used that connection, whether the listening thread must look anew. Answers to
    the other thread's statements do not wake it: the connection is left out of the wait while that thread uses it.
    """

    def __init__(self, stop: Stop, look: Callable[[], bool]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._closed = False
        self._flag = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        #: The connection's descriptor, while it is waited for.
        self._watched: int | None = None
        self._poll = select.epoll()
        self._poll.register(stop.fileno(), select.EPOLLIN)
        self._poll.register(self._flag, select.EPOLLIN)

    def begin(self) -> None:
        """The other thread uses the connection."""
        self._let_in(0)

    def end(self) -> None:
        """It does so no longer."""
        self._let_in(select.EPOLLIN)
        if self._look():
            with self._lock:
                if not self._closed:
                    os.eventfd_write(self._flag, 1)

    def poll(self, timeout_s: float) -> None:
        """Wait once."""
        self._poll.poll(timeout_s)

    def clear(self) -> None:
        """Forget that the other thread has used the connection."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._flag)

    def watch(self, descriptor: int | None) -> None:
        """Wait for this connection from now on, and for no other. The caller has it for itself."""
        with self._lock:
            if self._watched is not None:
                # A descriptor that was closed is not there any more.
                with suppress(OSError):
                    self._poll.unregister(self._watched)
            self._watched = descriptor
            if descriptor is not None:
                self._poll.register(descriptor, select.EPOLLIN)

    def close(self) -> None:
        """Give the descriptors back; `begin` and `end` do nothing afterwards."""
        with self._lock:
            self._closed = True
            self._poll.close()
            os.close(self._flag)

    def _let_in(self, events: int) -> None:
        with self._lock:
            if self._watched is not None and not self._closed:
                with suppress(OSError):
                    self._poll.modify(self._watched, events)


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

        `wanted` is asked at first and whenever the other store has used its connection, in that one's thread too. As
        long as it says no, it is not subscribed: each notification costs the server a wake-up of every session that is.
        """
        link = self._listener
        deadline_s = time.monotonic() + timeout_s
        wait = _Wait(stop, lambda: not link.listens or link.heard or not wanted())
        self._watched.watch(wait)
        try:
            while not stop.is_set():
                wait.clear()
                if wanted():
                    with link.open(answer_s=LISTEN_ANSWER_S, listener=True) as connection:
                        if not connection.listens:
                            rows(connection, queries.LISTEN_QUEUE)
                            rows(connection, queries.LISTEN_HOSTS)
                            connection.listens = True
                            return Wakeup(all_hosts=True)
                        # Before the first wait too: something may have come with the answer to an earlier statement.
                        connection.hear()
                        heard = [(note.channel, note.payload) for note in connection.heard]
                        connection.heard.clear()
                        wait.watch(connection.fileno())
                    if heard:
                        return _wakeup(heard)
                else:
                    wait.watch(None)
                    if link.listens:
                        self._unsubscribe()
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    break
                wait.poll(remaining_s)
        finally:
            self._watched.watch(None)
            wait.close()
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
