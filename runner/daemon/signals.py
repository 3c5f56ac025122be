"""Runs signal handlers in a thread of their own.

A Python signal handler interrupts the main thread anywhere, even while it holds the lock of an event that the handler
would set: a deadlock. So the handlers do nothing here, and a thread reads from the wake-up descriptor which signals
came.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from runner.base.logs import get_logger

_log = get_logger(__name__)


@contextmanager
def signals(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call a handler whenever its signal arrives, unless it was ignored before: `nohup` means that.

    SIGTERM is heard in any case: a shell that ignores it hands that on, and nothing else would end a daemon in order.

    Works only in a process's main thread; does nothing in another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    heard = [
        number for number in handlers if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, _nothing) for number in heard}
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_read, args=(reader, handlers), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        # The thread reads the end of the stream and ends.
        writer.close()
        thread.join()
        reader.close()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: a signal with a handler is written to the wake-up descriptor."""


def _read(reader: socket.socket, handlers: Mapping[signal.Signals, Callable[[], None]]) -> None:
    while numbers := reader.recv(64):
        for number in numbers:
            handler = handlers.get(signal.Signals(number))
            if handler is None:
                continue
            try:
                handler()
            except Exception:  # noqa: BLE001 - logged; the next signal must still be heard
                _log.exception("signal_handler_failed", signal=signal.Signals(number).name)
