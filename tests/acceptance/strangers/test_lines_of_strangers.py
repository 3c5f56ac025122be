"""Requests that a web server and a parser of forms complain about, by the hundred."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest
import structlog

from runner.base import logs
from tests.integration.extras.gateway.conftest import BOUNDARY, Gate, open_gate
from tests.integration.store.conftest import bench, db, store
from tests.support.waiting import PATIENCE_S

__all__ = ["bench", "db", "open_gate", "store"]

TIMES: Final = 20
HOST: Final = b"Host: x\r\nConnection: close\r\n"
UPLOAD: Final = b"POST /submission/identity/CPU/test HTTP/1.1\r\nX-Popcorn-Cli-Id: ada-token\r\n" + HOST
FORM: Final = f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: 40\r\n\r\n".encode()
REQUESTS: Final = {
    "TLS to a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a proxy's own protocol": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a websocket": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nHost: x\r\nConnection: Upgrade, close\r\n\r\n",
    "no form": UPLOAD + FORM + b"x" * 40,
    "half a form": UPLOAD + FORM + f"--{BOUNDARY}\r\n".encode().ljust(40, b"\x00"),
}


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What this process logs."""
    handlers = list(logging.getLogger().handlers)
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    yield stream
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()


def send(port: int, request: bytes) -> bytes:
    """The answer to some bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


def test_bad_requests_do_not_fill_the_log(open_gate: Callable[..., Gate], lines: io.StringIO) -> None:
    """One line of each place of the code that complains."""
    gate = open_gate(gateway_requests_per_minute=100_000)
    gate.bench.board()
    gate.user()
    for what, request in REQUESTS.items():
        for _ in range(TIMES):
            assert send(gate.port, request).startswith(b"HTTP/1.1 "), what
    written = Counter(json.loads(line)["component"] for line in lines.getvalue().splitlines())
    assert {"uvicorn.error", "python_multipart.multipart"} <= written.keys()
    assert written.total() <= 2 * len(REQUESTS), lines.getvalue()
