"""Init's connection to the daemon: frames over descriptors 0 and 1, and the request with its build archive.

Owns both descriptors. Standard library only: this runs inside the container.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox import protocol
from sandbox.inside.process import DaemonGone, Reaper

#: Reserved in the report for the `end` frame.
RESERVE_BYTES = 256 << 10


@dataclass(kw_only=True)
class DaemonConnection:
    """The connection to the daemon: frames over descriptors 0 and 1.

    The daemon keeps standard input open while it lives. End of file means that the daemon is gone. Then the container
    ends, so that it does not run on unattended: every method raises DaemonGone.
    """

    report_bytes: int
    reaper: Reaper
    _decoder: protocol.Decoder = field(default_factory=protocol.Decoder)
    _sent: int = 0

    @property
    def remaining_bytes(self) -> int:
        """Bytes that the report may still grow by. A reserve for the `end` frame is left out."""
        return self.report_bytes - RESERVE_BYTES - self._sent

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one frame; wait until the daemon takes it.

        Raises:
            FrameError: the message is too large for a frame.
        """
        data = memoryview(protocol.encode(message))
        self._sent += len(data)
        try:
            while data:
                data = data[os.write(1, data) :]
        except BrokenPipeError as error:
            raise DaemonGone from error

    def receive(self) -> Iterator[dict[str, Any]]:
        """Read what has arrived on standard input; return the complete messages. Call it when input is readable.

        Raises:
            FrameError: the input is not a frame.
        """
        data = os.read(0, 1 << 20)
        if not data:
            raise DaemonGone
        return self._decoder.feed(data)

    def request(self) -> tuple[dict[str, Any], bytes]:
        """Wait for the request and the build archive that follows it. Reap children meanwhile.

        Raises:
            FrameError: another frame arrived.
        """
        request = check_request(self._next())
        incoming = IncomingArchive(protocol.archive_size(request))
        while not incoming.complete:
            incoming.take(self._next())
        return request, incoming.data

    def _next(self) -> dict[str, Any]:
        while True:
            # Messages that arrived together with an earlier one.
            for message in self._decoder.feed(b""):
                return message
            ready, _, _ = select.select([0, self.reaper.wakeup_fd], [], [])
            self.reaper.collect()
            if 0 in ready:
                for message in self.receive():
                    return message

    def wait_for_close(self) -> None:
        """Wait after `end`, so that the daemon can read the cgroup: until it closes stdin, at most a minute."""
        while select.select([0], [], [], 60.0)[0]:
            if not os.read(0, 1 << 16):
                return


class IncomingArchive:
    """The build archive that follows a request, as far as it has arrived."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._data = bytearray()

    @property
    def complete(self) -> bool:
        """Whether the whole archive has arrived."""
        return len(self._data) == self._size

    @property
    def data(self) -> bytes:
        """The bytes that have arrived."""
        return bytes(self._data)

    def take(self, message: Mapping[str, Any]) -> None:
        """Append the next piece.

        Raises:
            FrameError: not an archive frame, or more than the request announced.
        """
        if message["type"] != "archive":
            raise protocol.FrameError(f"a {message['type']!r} frame within a build archive, expected 'archive'")
        self._data += protocol.ArchivePiece.from_message(message).data
        if len(self._data) > self._size:
            raise protocol.FrameError(f"a build archive of more than the {self._size} bytes it was announced with")


def check_request(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message if it is a request of this version, else FrameError."""
    if message["type"] != "request":
        raise protocol.FrameError(f"a {message['type']!r} frame, expected 'request'")
    if message.get("protocol") != protocol.VERSION:
        raise protocol.FrameError(f"request has protocol {message.get('protocol')!r}, expected {protocol.VERSION}")
    return dict(message)
