"""A proxy before PostgreSQL that can refuse connections or swallow all traffic."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class _Line:
    """One connection that was let through."""

    def __init__(self) -> None:
        #: What the client said first: its startup packet.
        self.greeting = b""
        #: Nothing passes any more, in either direction, without an error.
        self.silent = False


class Proxy:
    """Forwards a Unix socket to a database server; starts shut."""

    def __init__(self, database_url: str) -> None:
        parts = conninfo_to_dict(database_url)
        self._host = str(parts.get("host") or "localhost")
        self._port = int(parts.get("port") or 5432)
        self._directory = Path(tempfile.mkdtemp(prefix="kernel-runner-test-"))
        self._path = self._directory / ".s.PGSQL.5432"
        self.url = make_conninfo(database_url, host=str(self._directory), port="5432")
        self._listener: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._lines: list[_Line] = []
        self._lock = threading.Lock()
        self._hangs_up = False
        #: Attempts to connect that were answered by hanging up.
        self.knocks = 0

    def open(self) -> None:
        """Let connections through from now on."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen()
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def hang_up(self) -> None:
        """Break every connection, and each new one at once, until `answer`."""
        self._hangs_up = True
        self._break()

    def answer(self) -> None:
        """Let connections through again after `hang_up`."""
        self._hangs_up = False

    def silence(self, name: str) -> int:
        """Swallow whatever passes on the connections of that application name that there are now; how many."""
        with self._lock:
            chosen = [line for line in self._lines if name.encode() in line.greeting and not line.silent]
        for line in chosen:
            line.silent = True
        return len(chosen)

    def shut(self) -> None:
        """Break every connection and refuse new ones."""
        if self._listener is not None:
            # A blocked accept is woken by shutdown, not by close.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self._path.unlink()
        self._break()

    def close(self) -> None:
        """Shut for good."""
        self.shut()
        rmtree(self._directory)

    def _break(self) -> None:
        with self._lock:
            for end in self._sockets:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._hangs_up:
                self.knocks += 1
                client.close()
                continue
            server = self._connect()
            line = _Line()
            with self._lock:
                if self._listener is not listener:
                    # Shut meanwhile.
                    client.close()
                    server.close()
                    return
                self._sockets += [client, server]
                self._lines.append(line)
            for source, sink, tap in ((client, server, self.tap()), (server, client, None)):
                threading.Thread(target=_pump, args=(source, sink, tap, line), daemon=True).start()

    def tap(self) -> Callable[[bytes], object] | None:
        """What is to see the bytes that one client sends; for those who want to know."""
        return None

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port))


def _pump(source: socket.socket, sink: socket.socket, tap: Callable[[bytes], object] | None, line: _Line) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            line.greeting = line.greeting or data
            if tap is not None:
                tap(data)
            if not line.silent:
                sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
