"""Where a client lives: the one rule about processes, event loops and threads, asked before each call.

A client lives in the process, the event loop and the thread in which it was opened, until it is closed. A call from
elsewhere would wait for a thread or a connection that is not there, so it is an error at once that says what to do.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Final, NoReturn

from runner.base.errors import KernelRunnerError

_HOW: Final = "make a client in each process that uses one, after it was forked"


class ClientHomeError(KernelRunnerError, RuntimeError):
    """A client is used before it was opened, after it was closed, or where it does not live."""


class Home:
    """Of one client."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def open(self) -> None:
        """Live from now on in the running loop.

        Raises:
            ClientHomeError: it was opened before.
        """
        if self._loop is not None:
            raise ClientHomeError("this client was opened before; make a new one for each `with` block")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it lives, in this process: what a fork has of it belongs to the other process."""
        ended = self._loop is None or self._loop.is_closed() or self._closed
        return not ended and self._process == os.getpid()

    def end(self) -> None:
        """Live no longer."""
        self._closed = True

    def require_inside(self) -> None:
        """Make sure that this is a coroutine of the home's loop.

        Raises:
            ClientHomeError: it is none; or the client is not open.
        """
        self._require_open()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise ClientHomeError(
                "this client was opened in another event loop; make one for each loop, or one Client for all threads"
            )

    def require_outside(self) -> None:
        """Make sure that the home's own thread runs, and is another one.

        Raises:
            ClientHomeError: see above; or the client is not open.
        """
        self._require_open()
        if self._thread is threading.current_thread():
            raise ClientHomeError("this client is called by its own on_progress or items; return from there first")
        if sys.is_finalizing():
            raise ClientHomeError("this client is used while Python ends; finish with it before")

    def _require_open(self) -> None:
        if self._loop is None:
            raise ClientHomeError("this client is not open; use it within its `with` block")
        if self._process != os.getpid():
            raise ClientHomeError(
                f"this client belongs to process {self._process}, and this is process {os.getpid()}; {_HOW}"
            )
        if self._closed:
            raise self.closed_error()
        if self._loop.is_closed():
            raise ClientHomeError("the event loop of this client has ended; make a client within each asyncio.run")

    def closed_error(self) -> ClientHomeError:
        """What a call hears that comes after the end, or waits at it."""
        return ClientHomeError("this client is closed; use it within its `with` block, or make a new one")

    def refuse_copy(self) -> NoReturn:
        """Be no part of a pickle or a copy.

        Raises:
            ClientHomeError: always.
        """
        raise ClientHomeError(f"a client cannot be pickled or copied; {_HOW}")
