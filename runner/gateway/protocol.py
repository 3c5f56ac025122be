"""HTTP/1.1 as uvicorn speaks it, with bounds in time for clients that send or read slowly.

uvicorn bounds the pause between two requests alone. Without these bounds, a client that sends a header byte by byte, or
reads no answer, would hold its connection for ever.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: How long the head of a request may take, from the connection or from its first byte.
HEAD_S: Final = 20.0
#: How long a client that does not read may hold up an answer.
READ_S: Final = 60.0
#: How long a client may go on sending a body after it was refused: it may read the answer only then.
LINGER_S: Final = 10.0
#: How long a connection without a request yet may stay when the process is to stop: its request is on the way.
FIRST_S: Final = 5.0
#: To end a connection at once, with what its client has not read: SO_LINGER on, no second.
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_REFUSAL: Final = b'{"detail":"This is no HTTP request that can be read"}'


class Protocol(H11Protocol):
    """One connection."""

    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _refused: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The head of the first request is awaited from now on."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """No bound counts any more."""
        self._head = _cancelled(self._head)
        self._unread = _cancelled(self._unread)
        self._refused = _cancelled(self._refused)
        self._leaving = _cancelled(self._leaving)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that is not whole keeps the time at which it must be."""
        super().data_received(data)
        if self._leaving is not None and not self._unasked():
            self.cycle.keep_alive = False
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._await_head()
        else:
            self._head = _cancelled(self._head)

    def on_response_complete(self) -> None:
        """A client whose body was refused may send the rest for a while."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._refused = _cancelled(self._refused)
            self._refused = self.loop.call_later(LINGER_S, self._end_refused, self.cycle)
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            # A part of the next head came with this request.
            self._await_head()

    def shutdown(self) -> None:
        """The process is to stop. A client that has just connected still gets its first answer."""
        if self._unasked():
            self._leaving = self.loop.call_later(FIRST_S, self._end_unasked)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """The client reads more slowly than the answer is made."""
        super().pause_writing()
        self._unread = _cancelled(self._unread)
        self._unread = self.loop.call_later(READ_S, self._end)

    def resume_writing(self) -> None:
        """The client has read."""
        self._unread = _cancelled(self._unread)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """The pause between two requests is over; what the client has not read by then waits no longer."""
        super().timeout_keep_alive_handler()
        self._end()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Answer what is no HTTP request; in JSON, as all errors."""
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(_REFUSAL)).encode()),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=_REFUSAL), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_S, self._end_head)

    def _end_head(self) -> None:
        self._head = None
        self._end()

    def _end_refused(self, cycle: object) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY:
            self._end()

    def _unasked(self) -> bool:
        """Whether no request has come yet."""
        return vars(self)["cycle"] is None

    def _end_unasked(self) -> None:
        if self._unasked():
            super().shutdown()

    def _end(self) -> None:
        """Drop the connection, with what waits in the kernel."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """What stands for a timer that counts no more: None."""
    if timer is not None:
        timer.cancel()
    return None
