"""Messages between the judge and the worker: JSON of limited length over a stream socket, with descriptors beside it.

Owns the framing, not the meaning. A message is a 9-byte header (magic and version, body length, number of file
descriptors) and a body of UTF-8 JSON, one object with an `op`. Nothing is ever pickled. The judge takes no descriptors:
the kernel drops those that a worker sends. The judge treats every error from here as the worker's doing.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

#: Bytes of the largest message a worker may send; exceptions are cut below it.
MAX_FROM_WORKER_BYTES = 1 << 20
#: Bytes of the largest message the judge sends: a submission and the task's files.
MAX_FROM_JUDGE_BYTES = 32 << 20
#: Bytes of profile table and of compressed trace that the judge takes from a worker.
MAX_TABLE_BYTES = 256 << 10
MAX_TRACE_BYTES = 8 << 20
#: Bytes of the file that a vendor's profiler leaves. As base64 it is less than a quarter of a container's report.
MAX_REPORT_BYTES = 11 << 20
#: Bytes of that file as text, and as CSV.
MAX_PAGE_BYTES = 4 << 20
#: Characters of an exception's text, and of its traceback.
MAX_FAILURE_CHARS = 8_100
#: Descriptors beside one message.
MAX_DESCRIPTORS = 4

_MAGIC = b"KRW1"
_HEADER = struct.Struct("!4sIB")
_CHUNK_BYTES = 1 << 18
#: Made once: json.dumps would make an encoder for every message.
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class WireViolation(Exception):
    """The bytes that arrived are not a message of this protocol."""


class PeerClosed(Exception):
    """The other side has ended or closed its end."""


class Interrupted(Exception):
    """The wake-up descriptor became readable while waiting."""


def encode(message: Mapping[str, Any], *, descriptors: int = 0) -> bytes:
    """One message, ready to send. Encode before a timed span, so that only the system call is inside it."""
    body = _encoded(message).encode()
    return _HEADER.pack(_MAGIC, len(body), descriptors) + body


class Channel:
    """One end of the socket between judge and worker.

    `accept_descriptors` is for the worker: the judge receives none. `max_bytes` bounds a received body.
    """

    def __init__(self, sock: socket.socket, *, max_bytes: int, accept_descriptors: bool, wake_fd: int | None) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._max_bytes = max_bytes
        self._accept = accept_descriptors
        self._buffer = bytearray()
        #: The read buffer. Allocating so much memory for every read would cost more than the system call.
        self._chunk = bytearray(_CHUNK_BYTES)
        self._descriptors: deque[int] = deque()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._wake_fd = wake_fd
        if wake_fd is not None:
            self._poll.register(wake_fd, select.POLLIN)

    def send(self, message: bytes, descriptors: Sequence[int] = (), *, deadline_ns: int | None = None) -> None:
        """Send an encoded message and duplicates of `descriptors`; the caller keeps and closes its own.

        Raises:
            PeerClosed: the other side is gone.
            TimeoutError: `deadline_ns` (time.monotonic_ns) passed while the other side did not read.
        """
        view = memoryview(message)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        while view:
            try:
                sent = self._sock.sendmsg([view], ancillary, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline_ns)
                continue
            except (BrokenPipeError, ConnectionResetError) as error:
                raise PeerClosed("the other side is gone") from error
            ancillary = []
            view = view[sent:]

    def receive(self, *, deadline_ns: int | None = None, spin_ns: int = 0) -> tuple[dict[str, Any], list[int]]:
        """The next message and its descriptors, which the caller must close.

        Polls the socket for the first `spin_ns`, which is quicker than being woken up. Then the process sleeps until
        something arrives.

        Raises:
            PeerClosed, WireViolation, Interrupted, TimeoutError
        """
        spin_until = time.monotonic_ns() + spin_ns if spin_ns else 0
        while True:
            message = self._take()
            if message is not None:
                return message
            if self._fill():
                continue
            if spin_until and time.monotonic_ns() < spin_until:
                continue
            self._wait(select.POLLIN, deadline_ns)

    def readable(self, wait_ms: int) -> bool:
        """Whether something arrives, or the other side ends, within `wait_ms`."""
        return bool(self._poll.poll(wait_ms))

    def fileno(self) -> int:
        """The socket's descriptor, to wait for several channels at once."""
        return self._sock.fileno()

    def receive_now(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and its descriptors if they have arrived, without waiting.

        Raises:
            PeerClosed, WireViolation
        """
        while True:
            message = self._take()
            if message is not None or not self._fill():
                return message

    def close(self) -> None:
        """Close the socket, and every descriptor that arrived and was not taken."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._sock.close()

    def _fill(self) -> bool:
        try:
            if self._accept:
                space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
                size, ancillary, _, _ = self._sock.recvmsg_into([self._chunk], space, socket.MSG_CMSG_CLOEXEC)
                for level, kind, raw in ancillary:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        received = array.array("i")
                        received.frombytes(raw[: len(raw) - len(raw) % received.itemsize])
                        self._descriptors.extend(received)
            else:
                # A plain recv makes the kernel close all descriptors that were sent along.
                size = self._sock.recv_into(self._chunk)
        except BlockingIOError:
            return False
        except ConnectionResetError as error:
            raise PeerClosed("the other side is gone") from error
        if not size:
            raise PeerClosed("the other side closed its end")
        self._buffer += memoryview(self._chunk)[:size]
        return True

    def _take(self) -> tuple[dict[str, Any], list[int]] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        magic, length, count = _HEADER.unpack_from(self._buffer)
        if magic != _MAGIC:
            raise WireViolation(f"message starts with {magic!r}, expected {_MAGIC!r}")
        if length > self._max_bytes:
            raise WireViolation(f"message announces {length} bytes, at most {self._max_bytes} allowed")
        if count > (MAX_DESCRIPTORS if self._accept else 0):
            raise WireViolation(f"message announces {count} descriptors")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        if count > len(self._descriptors):
            raise WireViolation(f"message announces {count} descriptors, {len(self._descriptors)} arrived")
        return _parse(body), [self._descriptors.popleft() for _ in range(count)]

    def _wait(self, event: int, deadline_ns: int | None) -> None:
        if event != select.POLLIN:
            self._poll.modify(self._sock.fileno(), event)
        try:
            left_ms = None if deadline_ns is None else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e6)
            ready = self._poll.poll(left_ms)
        finally:
            if event != select.POLLIN:
                self._poll.modify(self._sock.fileno(), select.POLLIN)
        if not ready:
            raise TimeoutError("nothing arrived in time")
        # Messages from before the other side died still count, so the socket comes before the wake-up descriptor.
        if all(fd == self._wake_fd for fd, _ in ready):
            raise Interrupted("woken up while waiting")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireViolation(f"message is not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise WireViolation("message is not an object with an 'op'")
    return message
