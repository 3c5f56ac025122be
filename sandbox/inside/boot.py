"""What init was booted with, and its line to the daemon.

Owns the boot document's meaning, the environments of judge and worker, and descriptors 0 and 1. Called by the other
init modules only. Standard library only: this runs inside the container.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox import protocol
from sandbox.inside.process import Account, DaemonGone, InitError, Reaper

WORK = "/work"
JUDGE = "/judge"
TMP = "/tmp"  # noqa: S108 the container's own tmpfs, not the host's
PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Left free in the report for the `end` frame and framing.
RESERVE_BYTES = 256 << 10


@dataclass(frozen=True, kw_only=True)
class BootConfig:
    """The boot document, parsed."""

    kind: str
    judge_argv: tuple[str, ...]
    worker_argv: tuple[str, ...]
    judge: Account
    worker: Account
    #: The whole environment of every program here; what the image set is not passed on.
    environment: Mapping[str, str]
    output_bytes: int
    output_kill_bytes: int
    report_bytes: int

    def worker_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a program that runs as the worker: defaults, overridden by the spec, then by `extra`."""
        home = {"HOME": WORK, "TMPDIR": TMP, "USER": "worker", "LOGNAME": "worker", "SHELL": "/bin/sh"}
        return {"PATH": PATH, "LANG": "C.UTF-8", **home, **self.environment, **extra}

    def judge_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of the judge, whose home and temporary files are out of the worker's reach."""
        home = {"HOME": JUDGE, "TMPDIR": JUDGE, "USER": "judge", "LOGNAME": "judge", "SHELL": "/bin/sh"}
        return {"PATH": PATH, "LANG": "C.UTF-8", **self.environment, **home, **extra}


def parse_boot(text: str) -> BootConfig:
    """The boot document the engine put on the command line.

    Raises:
        InitError: not a boot document of this version.
    """
    try:
        boot = json.loads(text)
        if boot["protocol"] != protocol.VERSION:
            raise InitError(f"boot document has protocol {boot['protocol']!r}, this init speaks {protocol.VERSION}")
        if boot["kind"] not in ("pair", "steps"):
            raise InitError(f"boot kind is {boot['kind']!r}, expected 'pair' or 'steps'")
        groups = tuple(int(group) for group in boot["groups"])
        return BootConfig(
            kind=boot["kind"],
            judge_argv=tuple(boot["judge"]),
            worker_argv=tuple(boot["worker"]),
            judge=Account(uid=boot["judge_uid"], groups=groups, directory=JUDGE, umask=0o077, oom_score_adj=200),
            worker=Account(uid=boot["worker_uid"], groups=groups, directory=WORK, umask=0o022, oom_score_adj=1000),
            environment=dict(boot["environment"]),
            output_bytes=boot["output_bytes"],
            output_kill_bytes=boot["output_kill_bytes"],
            report_bytes=boot["report_bytes"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InitError(f"boot document does not parse: {type(error).__name__}: {error}") from error


@dataclass(kw_only=True)
class DaemonConnection:
    """Frames from and to the daemon over descriptors 0 and 1.

    The daemon keeps standard input open as long as it lives: its end of file means that nobody listens any more, and
    the container ends instead of running on as an orphan.
    """

    report_bytes: int
    reaper: Reaper
    _decoder: protocol.Decoder = field(default_factory=protocol.Decoder)
    _sent: int = 0

    @property
    def left_bytes(self) -> int:
        """Bytes the report may still grow, with a reserve for its end."""
        return self.report_bytes - RESERVE_BYTES - self._sent

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one frame; waits until the daemon takes it.

        Raises:
            FrameError: the message is too large for a frame.
            DaemonGone: the daemon closed its end.
        """
        data = memoryview(protocol.encode(message))
        self._sent += len(data)
        try:
            while data:
                data = data[os.write(1, data) :]
        except BrokenPipeError as error:
            raise DaemonGone from error

    def receive(self) -> Iterator[dict[str, Any]]:
        """Read what is there on standard input (call when it is readable): completed messages.

        Raises:
            FrameError: it is not a frame.
            DaemonGone: end of file.
        """
        data = os.read(0, 1 << 20)
        if not data:
            raise DaemonGone
        return self._decoder.feed(data)

    def request(self) -> tuple[dict[str, Any], bytes]:
        """Wait for the one request and the archive that follows it, collecting children meanwhile.

        Raises:
            FrameError: something else arrived.
            DaemonGone: end of file.
        """
        request = check_request(self._next())
        incoming = IncomingArchive(protocol.archive_size(request))
        while not incoming.complete:
            incoming.take(self._next())
        return request, incoming.data

    def _next(self) -> dict[str, Any]:
        while True:
            # What came along with an earlier message.
            for message in self._decoder.feed(b""):
                return message
            ready, _, _ = select.select([0, self.reaper.wakeup_fd], [], [])
            self.reaper.collect()
            if 0 in ready:
                for message in self.receive():
                    return message

    def wait_for_close(self) -> None:
        """After `end`: stay, so that the cgroup can be read, until the daemon closes the line or a minute is over."""
        while select.select([0], [], [], 60.0)[0]:
            if not os.read(0, 1 << 16):
                return


class IncomingArchive:
    """The archive that follows a request, as far as it has come."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._data = bytearray()

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        return len(self._data) == self._size

    @property
    def data(self) -> bytes:
        """What is there."""
        return bytes(self._data)

    def take(self, message: Mapping[str, Any]) -> None:
        """Add the next piece.

        Raises:
            FrameError: it is none, or more than was announced.
        """
        if message["type"] != "archive":
            raise protocol.FrameError(f"a {message['type']!r} frame within an archive, expected 'archive'")
        self._data += protocol.ArchivePiece.from_message(message).data
        if len(self._data) > self._size:
            raise protocol.FrameError(f"an archive of more than the {self._size} bytes it was announced with")


def check_request(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message, if it is a request of this version.

    Raises:
        FrameError: it is not.
    """
    if message["type"] != "request":
        raise protocol.FrameError(f"a {message['type']!r} frame, expected 'request'")
    if message.get("protocol") != protocol.VERSION:
        raise protocol.FrameError(f"request has protocol {message.get('protocol')!r}, expected {protocol.VERSION}")
    return dict(message)
