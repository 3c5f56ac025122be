"""Reports whether the daemon works and, if not, what it waits for: to the log, and to systemd.

Owns the notification protocol (`sd_notify(3)`: datagrams of KEY=VALUE lines). Decides nothing itself.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Final

from runner.base.errors import (
    DatabaseUnavailableError,
    DiskFullError,
    EngineUnavailableError,
    EvaluationError,
    HostNameTakenError,
    InfrastructureError,
)
from runner.base.logs import get_logger

_log = get_logger(__name__)

ENGINE: Final = "the container engine"
DATABASE: Final = "the database"
DISK: Final = "free disk space"
EVALUATION: Final = "the evaluation environment"
HOST_NAME: Final = "the host name"
SLOTS: Final = "a slot that can be used"
#: States change often while a database is half there: log each so often in so many seconds, then the last one.
LINES: Final = 4
LINES_S: Final = 60.0


def missing(error: InfrastructureError, *, otherwise: str) -> str:
    """The missing resource, by the kind of an error."""
    if isinstance(error, HostNameTakenError):
        return HOST_NAME
    if isinstance(error, EngineUnavailableError):
        return ENGINE
    if isinstance(error, DiskFullError):
        return DISK
    if isinstance(error, EvaluationError):
        return EVALUATION
    return DATABASE if isinstance(error, DatabaseUnavailableError) else otherwise


class Readiness:
    """The daemon's readiness. Threadsafe; a repeated state is reported once."""

    def __init__(self, notify_socket: str | None = None) -> None:
        self._socket = notify_socket
        #: When the last lines about each state were logged, and what the last of all said.
        self._logged_s: dict[str, deque[float]] = {}
        self._reported: str | None = None
        self._lock = threading.Lock()
        #: The missing resource; None while the daemon works.
        self.waiting_for: str | None = "start-up"
        #: Details about that, if any.
        self.reason: str | None = None
        #: The status while it works; None: it does not.
        self.status: str | None = None
        self._announced = False
        #: Set while jobs are being claimed.
        self.ready = threading.Event()

    def not_ready(self, waiting_for: str, *, reason: str) -> None:
        """Something is missing. Logged once per `waiting_for`, however often it is retried."""
        with self._lock:
            news = self.waiting_for != waiting_for
            self.waiting_for, self.reason = waiting_for, reason
            self.ready.clear()
            due = self._due(waiting_for)
        if due:
            _log.warning("not_ready", waiting_for=waiting_for, reason=reason)
        if news:
            self.tell(f"STATUS=not ready: waiting for {waiting_for}: {_one_line(reason)}")

    def working(self, status: str) -> None:
        """Jobs are claimed. Sends READY=1 the first time, and what has changed since."""
        with self._lock:
            news = self.waiting_for is not None or self.status != status
            self.waiting_for, self.reason, self.status = None, None, status
            self.ready.set()
            due = self._due(f"ready: {status}")
        if due:
            _log.info("ready", status=status)
        if news:
            self._up(status)

    def paused(self, why: str) -> None:
        """All is well, but no jobs are claimed, on purpose. Sends READY=1, too. Logged once per `why`."""
        with self._lock:
            news = self.waiting_for != why
            self.waiting_for, self.reason = why, None
            self.ready.clear()
            due = self._due(why)
        if due:
            _log.warning("claiming_paused", reason=why)
        if news:
            self._up(why)

    def stopping(self, status: str) -> None:
        """No more jobs are claimed."""
        with self._lock:
            self.waiting_for, self.reason = "shutdown", status
            self.ready.clear()
        _log.info("stopping", status=status)
        self.tell(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def _due(self, state: str) -> bool:
        """Whether to log a state now. Asked with every report, so the last of many changes is logged in the end."""
        now_s = time.monotonic()
        self._logged_s = {key: at for key, at in self._logged_s.items() if now_s - at[-1] < LINES_S}
        logged_s = self._logged_s.setdefault(state, deque([float("-inf")] * LINES, maxlen=LINES))
        if state == self._reported or now_s - logged_s[0] < LINES_S:
            return False
        self._reported = state
        logged_s.append(now_s)
        return True

    def _up(self, status: str) -> None:
        first = not self._announced
        self._announced = True
        self.tell(("READY=1\n" if first else "") + f"STATUS={_one_line(status)}")

    def tell(self, message: str) -> None:
        """Send the service manager a message, if there is one; delivery is not confirmed."""
        if self._socket is None:
            return
        # A leading @ stands for the zero byte of the abstract namespace.
        address = "\0" + self._socket[1:] if self._socket.startswith("@") else self._socket
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.settimeout(1.0)
                channel.connect(address)
                channel.send(message.encode("utf-8", "backslashreplace"))
        except OSError as error:
            _log.warning("service_manager_unreachable", error=str(error))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
