"""The network between one process and the database: TCP on this side, the server's Unix socket on the other.

It breaks the way networks do. `refuse`: connections break and new ones are refused. `reset`: connections break, new
ones work. `blackhole`: nothing arrives any more, without an error; when it passes, what was held up arrives late, or
the connections are found dead. `deaf`: what the process sends arrives, the answers do not.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

_CHUNK_BYTES: Final = 65536
#: SO_LINGER with no time: closing sends a reset.
_RESET: Final = struct.pack("ii", 1, 0)


class Cut(StrEnum):
    """How the network is broken."""

    REFUSE = "refuse"
    RESET = "reset"
    BLACKHOLE = "blackhole"
    DEAF = "deaf"


class Proxy:
    """Listens on a port of the loopback; open from the start. Threadsafe."""

    def __init__(self, server_socket: Path) -> None:
        self._server_socket = server_socket
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        #: Cleared while nothing may pass.
        self._flowing = threading.Event()
        self._flowing.set()
        self._deaf = threading.Event()
        #: Bound and never listening: keeps the port ours while connections are refused.
        self._keeper = _bound(0)
        self.port = int(self._keeper.getsockname()[1])
        self._listener: socket.socket | None = None
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str) -> str:
        """The database's address through this proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?gssencmode=disable&sslmode=disable"

    @property
    def connections(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._pairs)

    def cut(self, how: Cut) -> None:
        """Break the network; `heal` ends it."""
        if how is Cut.BLACKHOLE:
            self._flowing.clear()
        elif how is Cut.DEAF:
            self._deaf.set()
        else:
            if how is Cut.REFUSE:
                self._shut()
            self._break()

    def heal(self, *, late: bool) -> None:
        """Work again. `late`: what a black hole held up arrives now; otherwise its connections are dead."""
        if not late or self._deaf.is_set():
            # A stream that lost bytes in its middle is no TCP stream any more.
            self._break()
        self._deaf.clear()
        self._flowing.set()
        if self._listener is None:
            self._open()

    def close(self) -> None:
        """Break everything for good."""
        self._shut()
        self._keeper.close()
        self._break()
        self._flowing.set()

    def _open(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), name=f"proxy {self.port}", daemon=True).start()

    def _shut(self) -> None:
        """Refuse connections from now on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # A blocked accept is woken by shutdown, not by close.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            pair = _Pair(client, self._flowing, self._deaf, self._forget)
            with self._lock:
                self._pairs.add(pair)
            pair.start(self._server_socket)

    def _break(self) -> None:
        with self._lock:
            pairs = tuple(self._pairs)
        for pair in pairs:
            pair.kill()

    def _forget(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)


def _bound(port: int) -> socket.socket:
    """A socket on a port of the loopback (0: any free one), which a second one of ours may share until one listens."""
    made = socket.socket(socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


class _Pair:
    """A connection of the process and its other half to the server. Two threads; the first to end closes both."""

    def __init__(
        self, client: socket.socket, flowing: threading.Event, deaf: threading.Event, forget: Callable[[_Pair], None]
    ) -> None:
        self._client = client
        self._server = socket.socket(socket.AF_UNIX)
        self._flowing = flowing
        self._deaf = deaf
        self._forget = forget
        self._dead = threading.Event()

    def start(self, server_socket: Path) -> None:
        """Forward from now on."""
        threading.Thread(target=self._upstream, args=(server_socket,), name="proxy up", daemon=True).start()

    def kill(self) -> None:
        """Reset both halves."""
        self._dead.set()
        for end in (self._client, self._server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _upstream(self, server_socket: Path) -> None:
        try:
            self._wait()
            self._server.connect(str(server_socket))
        except OSError:
            self.kill()
            self._end()
            return
        down = threading.Thread(target=self._downstream, name="proxy down", daemon=True)
        down.start()
        self._pump(self._client, self._server)
        down.join()
        self._end()

    def _downstream(self) -> None:
        self._pump(self._server, self._client, deaf=self._deaf)

    def _pump(self, source: socket.socket, sink: socket.socket, *, deaf: threading.Event | None = None) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._wait()
                if deaf is None or not deaf.is_set():
                    sink.sendall(data)
            # An end, too, takes its time through a black hole.
            self._wait()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait(self) -> None:
        """Wait out a black hole.

        Raises:
            ConnectionError: the connection was reset meanwhile.
        """
        while not self._flowing.wait(0.1):
            if self._dead.is_set():
                break
        if self._dead.is_set():
            raise ConnectionResetError

    def _end(self) -> None:
        self._client.close()
        self._server.close()
        self._forget(self)
