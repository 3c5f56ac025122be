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

    def request(self) -> IncomingRequest:
        """Wait for the request and the build archive that follows it. Reap children meanwhile.

        Raises:
            FrameError: another frame arrived.
        """
        incoming = IncomingRequest()
        while not incoming.take(self._next()):
            pass
        return incoming

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

    def next_request(self) -> IncomingRequest | None:
        """Wait after `end`, at most a minute, for a further request; None: there is none.

        Raises:
            DaemonGone: the daemon closed stdin within it.
            FrameError: another frame arrived.
        """
        while select.select([0], [], [], 60.0)[0]:
            data = os.read(0, 1 << 20)
            if not data:
                break
            for message in self._decoder.feed(data):
                # A late one.
                if message["type"] == "reading":
                    continue
                self._sent = 0
                incoming, arrived = IncomingRequest(), message
                while not incoming.take(arrived):
                    arrived = self._next()
                return incoming
        return None

    def wait_for_close(self) -> None:
        """Wait after `end`, so that the daemon can read the cgroup: until it closes stdin, at most a minute."""
        while select.select([0], [], [], 60.0)[0]:
            if not os.read(0, 1 << 16):
                return


class IncomingRequest:
    """A request and the build archive that follows it, as far as they have arrived."""

    def __init__(self) -> None:
        self.request: Mapping[str, Any] = {}
        self._archive = bytearray()
        self._archive_bytes = 0

    @property
    def archive(self) -> bytes:
        """The archive's bytes."""
        return bytes(self._archive)

    def take(self, message: Mapping[str, Any]) -> bool:
        """Take the next frame; whether all is there.

        Raises:
            FrameError: another frame is due, or more than the request has announced.
        """
        due = "archive" if self.request else "request"
        if message["type"] != due:
            raise protocol.FrameError(f"a {message['type']!r} frame, expected {due!r}")
        if self.request:
            self._archive += protocol.ArchivePiece.from_message(message).data
        elif message.get("protocol") != protocol.VERSION:
            raise protocol.FrameError(f"request has protocol {message.get('protocol')!r}, expected {protocol.VERSION}")
        else:
            self.request, self._archive_bytes = message, protocol.archive_size(message)
        if len(self._archive) > self._archive_bytes:
            raise protocol.FrameError(
                f"a build archive of more than the {self._archive_bytes} bytes it was announced with"
            )
        return len(self._archive) == self._archive_bytes
