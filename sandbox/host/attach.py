"""A container's stdin, stdout and stderr over the engine's socket.

This does not use the engine's Python client. Its socket may have been read through a buffer already, has a type that
depends on the transport, and cannot close one direction. The protocol is small: one HTTP request, then 8-byte headers.
Source: Docker Engine API, "Attach to a container", stream format.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from http import HTTPStatus

from sandbox.errors import EngineRefused, EngineUnavailable, ProtocolError

STDOUT = 1
STDERR = 2
_HEADER = struct.Struct("!BxxxI")
_MAX_HEAD_BYTES = 1 << 16
READ_BYTES = 1 << 18


class Demultiplexer:
    """Splits the engine's stream into (stream number, bytes). Pure."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces in `data` without buffering; one frame of the engine may arrive in several pieces.

        Raises:
            ProtocolError: a stream number that the API does not define.
        """
        view = memoryview(data)
        while view:
            if self._left == 0:
                need = _HEADER.size - len(self._header)
                self._header += view[:need]
                view = view[need:]
                if len(self._header) < _HEADER.size:
                    return
                self._stream, self._left = _HEADER.unpack(self._header)
                self._header.clear()
                if self._stream not in (0, STDOUT, STDERR):
                    raise ProtocolError(f"the engine sent stream number {self._stream}, expected 1 or 2")
                continue
            piece = bytes(view[: self._left])
            self._left -= len(piece)
            view = view[len(piece) :]
            yield self._stream, piece


class Attachment:
    """An attached stream: a connection that the engine took out of HTTP."""

    def __init__(self, sock: socket.socket, already_read: bytes) -> None:
        self._socket = sock
        self._pending = already_read
        self._demultiplexer = Demultiplexer()
        sock.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def read(self) -> list[tuple[int, bytes]] | None:
        """Return what has arrived, as (stream number, bytes); None at the end of the stream. Does not wait.

        Raises:
            ProtocolError: not the engine's stream format.
        """
        data, self._pending = self._pending, b""
        if not data:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return []
            except ConnectionError:
                return None
            if not data:
                return None
        return list(self._demultiplexer.feed(data))

    def write(self, data: memoryview) -> int:
        """Write what fits and return its size. Does not wait. Returns 0 also if the other side is gone."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ConnectionError):
            return 0

    def close_stdin(self) -> None:
        """Send end of file to the container; its output can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both directions; idempotent."""
        self._socket.close()


def attach(socket_path: str, api_version: str, container_id: str, *, timeout_s: float) -> Attachment:
    """Attach to a container that is created but not started, so that no output is lost.

    Raises:
        EngineRefused: the answer is not a stream.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(socket_path)
        query = "stream=1&stdin=1&stdout=1&stderr=1"
        sock.sendall(
            f"POST /v{api_version}/containers/{container_id}/attach?{query} HTTP/1.1\r\n"
            "Host: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode("ascii")
        )
        head, rest = _read_head(sock)
        _check_status(head, rest, container_id)
        return Attachment(sock, rest)
    except OSError as error:
        sock.close()
        raise EngineUnavailable(f"container {container_id[:12]}: attach to {socket_path} failed: {error}") from error
    except BaseException:
        sock.close()
        raise


def _check_status(head: bytes, rest: bytes, container_id: str) -> None:
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    words = status.split()
    if len(words) < 2 or words[1] not in (str(HTTPStatus.SWITCHING_PROTOCOLS.value), str(HTTPStatus.OK.value)):
        raise EngineRefused(
            f"container {container_id[:12]}: attach was answered with {status!r}, expected 101;"
            f" {rest[:500].decode('utf-8', 'replace')}"
        )


def _read_head(sock: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = sock.recv(4096)
        if not chunk or len(data) > _MAX_HEAD_BYTES:
            raise EngineRefused("the engine's answer to attach is not HTTP")
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest
