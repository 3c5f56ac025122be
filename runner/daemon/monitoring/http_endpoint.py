"""`/healthz`, `/readyz` and `/metrics` over HTTP, on a socket that only this host can reach by default.

Owns the socket and its threads, and knows nothing about the answers (`health`). It cannot harm the daemon: an occupied
address, a slow client or a broken answer is one line in the log.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final, Protocol

from runner.config import HttpAddress
from runner.logs import LogRateLimit, get_logger

_log = get_logger(__name__)

#: A client that sends or reads nothing for so long is disconnected.
PATIENCE_S: Final = 5.0
#: The most clients at a time; more are disconnected.
CLIENTS: Final = 8
#: Between two attempts to get the address.
RETRY_S: Final = 10.0


class Answers(Protocol):
    """The source of the answers (`runner.daemon.monitoring.health.HealthReport`)."""

    def health(self) -> tuple[bool, Mapping[str, Any]]:
        """Whether the daemon is alive, and what there is to say."""
        ...

    def ready(self) -> tuple[bool, Mapping[str, Any]]:
        """Whether it claims jobs, and what there is to say."""
        ...

    def metrics(self) -> bytes:
        """Everything in Prometheus' text format."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Reply:
    status: HTTPStatus
    content_type: str
    body: bytes


class Endpoint:
    """Threadsafe. Listens from the first `listen` to `close`."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._address: HttpAddress | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Where it listens: `127.0.0.1:9469`, `/run/x.sock`; None: nowhere at the moment.
        self.bound: str | None = None

    def listen(self, address: HttpAddress | None) -> None:
        """Listen there from now on, and nowhere else; None: nowhere."""
        with self._lock:
            if address == self._address:
                return
            self._end()
            self._address = address
            if address is not None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._serve, args=(address, self._stop), name="http", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        with self._lock:
            self._end()
            self._address = None

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            self._thread = None

    def _serve(self, address: HttpAddress, stop: threading.Event) -> None:
        said = False
        while not stop.is_set():
            try:
                server = _Server(address, self._answers)
            except OSError as error:
                if not said:
                    said = True
                    _log.error(
                        "http_not_listening",
                        http_listen=str(address),
                        error=f"{error.strerror or error}: free the address, or name another as http_listen",
                    )
                stop.wait(RETRY_S)
                continue
            with server:
                self.bound = server.bound
                _log.info("http_listening", http_listen=server.bound)
                while not stop.is_set():
                    server.handle_request()
                self.bound = None
            return


class _Server(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """One listening socket, of either family."""

    daemon_threads = True
    #: How often the thread that accepts looks at its stop event.
    timeout = 0.5

    def __init__(self, address: HttpAddress, answers: Answers) -> None:
        super().__init__(str(address), _Handler)
        self.answers = answers
        self.log_limit = LogRateLimit()
        self._room = threading.BoundedSemaphore(CLIENTS)
        self._path = address.path
        self.socket = _unix(address.path) if address.path is not None else _tcp(address)
        port = self.socket.getsockname()[1] if address.path is None else 0
        self.bound = str(address if address.path is not None else HttpAddress(host=address.host, port=port))

    def fileno(self) -> int:
        """The listening socket's descriptor, to wait on."""
        return self.socket.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next client."""
        return self.socket.accept()

    def verify_request(self, _request: object, _client: object) -> bool:
        """Whether there is room for one more."""
        return self._room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Answer one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, _request: object, _client: object) -> None:
        """A client disconnected in the middle, which is worth a debug line only."""
        _log.debug("http_answer_aborted", exc_info=True)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as the base has it
        """Hang up."""
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        request.close()

    def server_close(self) -> None:
        """Listen no more; what is being answered is answered."""
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    """One client's connection, for one question."""

    timeout = PATIENCE_S
    server: _Server
    server_version = "kernel-runner"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer without the text."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        reply = self._reply(self.path.partition("?")[0])
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(reply.body)

    def _reply(self, path: str) -> _Reply:
        answers = self.server.answers
        try:
            match path:
                case "/healthz":
                    return _told(*answers.health())
                case "/readyz":
                    return _told(*answers.ready())
                case "/metrics":
                    return _Reply(
                        status=HTTPStatus.OK,
                        content_type="text/plain; version=0.0.4; charset=utf-8",
                        body=answers.metrics(),
                    )
                case _:
                    known = "expected /healthz, /readyz or /metrics"
                    return _json(HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {path[:200]!r}, {known}"})
        except Exception as error:  # noqa: BLE001 - the outermost frame of an answer; logged
            if (left_out := self.server.log_limit.due(path)) is not None:
                _log.exception("http_request_failed", path=path, left_out=left_out)
            return _json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}, see the log"})

    def address_string(self) -> str:
        """The client's address; a unix socket has none."""
        return str(self.client_address[:1])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: a scrape every fifteen seconds is no news."""


def _told(good: bool, said: Mapping[str, Any]) -> _Reply:  # noqa: FBT001 - unpacked from an answer
    return _json(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, said)


def _json(status: HTTPStatus, said: Mapping[str, Any]) -> _Reply:
    return _Reply(status=status, content_type="application/json", body=f"{json.dumps(said)}\n".encode())


def _tcp(address: HttpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in (address.host or "") else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for connections of the earlier process to be forgotten.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def _unix(path: Path) -> socket.socket:
    """A socket for its owner and group. What an earlier process left there goes; anything but a socket does not.

    Raises:
        OSError: there is something else, or it cannot be made.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is no socket")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        # By way of the directory's descriptor, because an address has room for 107 bytes only.
        short = f"/proc/self/fd/{directory}/{path.name}"
        listening.bind(short)
        # No client can connect before it listens.
        path.chmod(0o660)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(directory)
    return listening
