"""What the judge of a group asks of init: workers, one after the other, and the files that were built for them."""

from __future__ import annotations

import socket

from tasks.harness.judge.frames import Frames

#: Workers that are started ahead at most: those of a group of the usual size. Each holds memory of the device.
MOST_AHEAD = 7


class InitLine:
    """Orders are frames; what init gives comes over a socket."""

    def __init__(self, line: socket.socket, frames: Frames) -> None:
        self._line = line
        self._frames = frames
        #: Whether workers are being started ahead.
        self._awaits = False

    def new_worker(self, role: str) -> socket.socket:
        """The judge's end of the socket of a worker ("candidate" or "reference"). A candidate's replaces the last one.

        Raises:
            RuntimeError: none was started.
        """
        self._frames.send({"type": "spawn", "role": role})
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._line, 1, 1)
            if data != b"a":
                break
            self._awaits = False
        if not data:
            raise RuntimeError(f"no {role} worker was started")
        return socket.socket(fileno=descriptors[0])

    def begin_ahead(self, count: int) -> None:
        """Let candidates' workers be started that make their contexts now, and wait until each is a candidate's."""
        self._awaits = True
        self._frames.send({"type": "ahead", "count": min(count, MOST_AHEAD)})

    def await_ahead(self) -> None:
        """Wait until none of those makes a context any more.

        Raises:
            RuntimeError: init does not say so.
        """
        if self._awaits and self._line.recv(1) != b"a":
            raise RuntimeError("init does not say whether the workers that it has started ahead are ready")
        self._awaits = False

    def unpack(self, candidate: int) -> bool:
        """Have what was built of a candidate put where its worker finds it; False: none of it can be used.

        Raises:
            RuntimeError: init does not say whether it is there.
        """
        self._frames.send({"type": "unpack", "name": str(candidate)})
        answer = self._line.recv(1)
        if not answer:
            raise RuntimeError("init does not say whether it has unpacked a build")
        return answer == b"u"
