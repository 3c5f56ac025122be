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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from runner.base.config import HttpAddress
from runner.base.logs import LogRateLimit, get_logger
from runner.daemon.monitoring.health import HealthReport

_log = get_logger(__name__)

#: A client that sends or reads nothing for this long is disconnected.
CLIENT_TIMEOUT_S: Final = 5.0
#: The most clients at a time; more are disconnected.
CLIENTS: Final = 8
#: How soon the thread that accepts sees that it is to end.
_STOP_S: Final = 0.5
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Listens from `listen` to `close`."""

    def __init__(self, answers: HealthReport) -> None:
        self._answers = answers
        self._server: _Server | None = None

    @property
    def bound(self) -> str | None:
        """Where it listens: `127.0.0.1:9469`, `unix:/run/x.sock`; None: nowhere."""
        return None if self._server is None else self._server.bound

    def listen(self, address: HttpAddress) -> None:
        """Listen there. An address that cannot be had is logged."""
        try:
            self._server = _Server(address, self._answers)
        except OSError as error:
            remedy = "free the address, or name another as http_listen; then restart the daemon"
            _log.error("http_not_listening", http_listen=str(address), error=f"{error.strerror or error}: {remedy}")
            return
        threading.Thread(target=self._server.serve_forever, args=(_STOP_S,), name="http", daemon=True).start()
        _log.info("http_listening", http_listen=self.bound)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None


class _Server(socketserver.ThreadingTCPServer):
    """One listening socket, of any family; each client has a thread."""

    daemon_threads = True
    block_on_close = False
    # A restart must not wait for connections of the earlier process to be forgotten.
    allow_reuse_address = True

    def __init__(self, address: HttpAddress, answers: HealthReport) -> None:
        self.answers = answers
        self.log_limit = LogRateLimit()
        self._room = threading.BoundedSemaphore(CLIENTS)
        self._path = address.path
        if address.path is not None:
            self.address_family = socket.AF_UNIX
        elif ":" in (address.host or ""):
            self.address_family = socket.AF_INET6
        super().__init__((address.host or "", address.port), _Handler)
        port = 0 if address.path is not None else self.socket.getsockname()[1]
        self.bound = str(HttpAddress(host=address.host, port=port, path=address.path))

    def server_bind(self) -> None:
        """Bind; a unix socket for its owner and group, before any client can connect."""
        if self._path is None:
            super().server_bind()
            return
        _remove_socket(self._path)
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            # By way of the directory's descriptor, because an address has room for 107 bytes only.
            self.socket.bind(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)
        self._path.chmod(0o660)

    def server_close(self) -> None:
        """Listen no more; what is being answered is answered."""
        super().server_close()
        if self._path is not None and hasattr(self, "bound"):
            self._path.unlink(missing_ok=True)

    def verify_request(self, _request: object, _client: object) -> bool:
        """Whether there is room for one more client."""
        return self._room.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Start the thread of one client."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The process may have no more threads now.
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Answer one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, _request: object, _client: object) -> None:
        """A client disconnected in the middle, which is worth a debug line only."""
        _log.debug("http_answer_aborted", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One client's connection, for one question."""

    timeout = CLIENT_TIMEOUT_S
    server: _Server
    server_version = "kernel-runner"
    sys_version = ""

    def do_HEAD(self) -> None:
        """Answer a probe: as to GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        try:
            status, body = self._answer(path)
        except Exception as error:  # noqa: BLE001 - the outermost frame of an answer; logged
            if (left_out := self.server.log_limit.due(path)) is not None:
                _log.exception("http_request_failed", path=path, left_out=left_out)
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}, see the log"}
        text = body if isinstance(body, bytes) else f"{json.dumps(body)}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", _METRICS_TYPE if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _answer(self, path: str) -> tuple[HTTPStatus, Mapping[str, Any] | bytes]:
        """The status, and JSON or metrics."""
        answers = self.server.answers
        match path:
            case "/healthz" | "/readyz":
                good, details = answers.health() if path == "/healthz" else answers.ready()
                return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, details
            case "/metrics":
                return HTTPStatus.OK, answers.metrics()
            case _:
                paths = "expected /healthz, /readyz or /metrics"
                return HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {path[:200]!r}, {paths}"}

    def address_string(self) -> str:
        """The client's address; a unix socket has none."""
        return str(self.client_address[:1])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: a scrape every fifteen seconds is no news."""


def _remove_socket(path: Path) -> None:
    """Remove what an earlier process left there; anything but a socket stays.

    Raises:
        FileExistsError: there is something else.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is no socket")
        path.unlink()
