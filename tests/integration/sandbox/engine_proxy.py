"""An engine between us and the real one: passes requests on, changes them, answers in its place, or remembers them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: How long a step of a conversation may take before the proxy lets go of it.
PATIENCE_S = 60.0
_VERSION = re.compile(r"^/v([\d.]+)")


@dataclass(kw_only=True)
class Call:
    """One request, as hooks see it; they may change the body."""

    method: str
    #: Without the version: `/containers/create`.
    path: str
    body: bytes
    #: Of the API; None: the path has none.
    version: str | None = None

    def json(self) -> Any:  # noqa: ANN401 whatever JSON holds
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(kw_only=True)
class Answer:
    """An answer in the engine's place, or the engine's own as a hook sees it."""

    status: int
    body: bytes

    @classmethod
    def error(cls, text: str, status: int = 500) -> Answer:
        """What an engine says when it fails."""
        return cls(status=status, body=json.dumps({"message": text}).encode())


@dataclass
class EngineProxy:
    """Listens on a Unix socket of its own. `before` may answer itself; `after` may change what the engine answered."""

    upstream: str
    before: Callable[[Call], Answer | None] = lambda _: None
    #: Called with answers that are JSON objects; returns the body to pass on.
    after: Callable[[Call, dict[str, Any]], dict[str, Any]] | None = None
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self._path = self._directory / "engine.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """What to set DOCKER_HOST to."""
        return f"unix://{self._path}"

    def cut(self) -> None:
        """Drop every connection, as an engine that dies does; new ones are let in."""
        with self._lock:
            open_now = list(self._open)
        for sock in open_now:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._listener.close()
        self.cut()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._lock:
            self._open |= {client, upstream}
        try:
            client.settimeout(PATIENCE_S)
            self._one(client, upstream)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {client, upstream}
            client.close()
            upstream.close()

    def _one(self, client: socket.socket, upstream: socket.socket) -> None:
        """One request per connection: the answer says so."""
        head, rest = _read_head(client)
        if not head:
            # A client only looks whether the port is open.
            return
        line, *headers = head.split("\r\n")
        method, target, _ = line.split(" ", 2)
        names = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
        streamed = "upgrade" in names or "transfer-encoding" in names
        body = rest
        while not streamed and len(body) < int(names.get("content-length", 0)):
            body += client.recv(1 << 16)
        version = _VERSION.match(target)
        call = Call(
            method=method,
            path=_VERSION.sub("", target),
            body=b"" if streamed else body,
            version=version and version[1],
        )
        self.calls.append(call)
        answer = self.before(call)
        if answer is not None:
            client.sendall(_response(answer))
            return
        upstream.connect(self.upstream.removeprefix("unix://"))
        if streamed:
            upstream.sendall(f"{head}\r\n\r\n".encode("latin-1") + rest)
            _both_ways(client, upstream)
            return
        kept = [
            header for header in headers if header.partition(":")[0].lower() not in ("content-length", "connection")
        ]
        kept += [f"Content-Length: {len(call.body)}", "Connection: close"]
        upstream.sendall("\r\n".join([line, *kept]).encode("latin-1") + b"\r\n\r\n" + call.body)
        if self.after is None:
            _pass_on(upstream, client)
            return
        client.sendall(self._changed(call, upstream))

    def _changed(self, call: Call, upstream: socket.socket) -> bytes:
        raw = b"".join(iter(lambda: upstream.recv(1 << 16), b""))
        head, _, body = raw.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            body = _unchunked(body)
        assert self.after is not None
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            body = json.dumps(self.after(call, parsed)).encode()
        return _response(Answer(status=int(head.split()[1]), body=body))


def _response(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} So\r\nContent-Type: application/json\r\nContent-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + answer.body


def _read_head(client: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(1 << 16)
        if not chunk:
            return "", b""
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _both_ways(client: socket.socket, upstream: socket.socket) -> None:
    client.settimeout(None)
    inwards = threading.Thread(target=_pass_on, args=(client, upstream), daemon=True)
    inwards.start()
    _pass_on(upstream, client)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    inwards.join(PATIENCE_S)


def _unchunked(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
        if length == 0:
            break
    return whole
