"""Clients that send or read slowly: each loses its connection, and no other waits for it."""

from __future__ import annotations

import http.client
import select
import socket
import time

import pytest

from runner.gateway import limits, protocol
from tests.integration.gateway.conftest import BOUNDARY, Gate
from tests.support.waiting import PATIENCE_S, wait_until

#: For this long the gateway waits in these tests, in seconds.
SHORT_S = 0.5


def ended(connection: socket.socket) -> bytes:
    """What comes until the end of a connection; a test waits at most `PATIENCE_S` for it."""
    got = b""
    connection.settimeout(PATIENCE_S)
    try:
        while chunk := connection.recv(65536):
            got += chunk
    except ConnectionError:
        pass
    return got


def drip(connection: socket.socket) -> None:
    """Send a byte now and then, until the gateway ends the connection or `PATIENCE_S` are over."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        connection.sendall(b"y")
        time.sleep(SHORT_S / 10)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"\r\n",
    ],
)
def test_a_head_that_does_not_come(gate: Gate, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Nothing, a byte, half a header: the gateway ends the connection."""
    monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)
    with socket.create_connection(("127.0.0.1", gate.port)) as connection:
        connection.sendall(sent)
        assert b'{"status":"ok"}' not in ended(connection)


def test_a_second_head_that_does_not_come(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it comes with the request before, which is answered: then the gateway ends the connection."""
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S) as connection:
        # Before the bound is short: a busy machine may take longer than that from the connection to its first byte.
        connection.sendall(whole)
        got = b""
        while not got.endswith(b'{"status":"ok"}'):
            got += connection.recv(65536)
        monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)
        connection.sendall(whole + whole[:20])
        assert ended(connection).count(b'{"status":"ok"}') == 1


def test_each_byte_of_a_head_gives_no_more_time(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends a byte now and then is no faster than one that sends none."""
    monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)
    with socket.create_connection(("127.0.0.1", gate.port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            drip(connection)


def test_a_whole_head_counts_no_more(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on heads ends no request that runs, and no connection between two of them."""
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE_S)
    for turn in range(3):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        if turn == 0:
            # Not before: a busy machine may take longer than that from the connection to its first byte.
            monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)
        time.sleep(2 * SHORT_S)
    connection.close()


def test_a_body_that_does_not_come(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """408, and the end of the connection although the client goes on sending."""
    monkeypatch.setattr(limits, "BODY_S", SHORT_S)
    monkeypatch.setattr(protocol, "LINGER_S", SHORT_S)
    head = (
        "POST /submission/identity/CPU/test HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: 900000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gate.port)) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")
        with pytest.raises(ConnectionError):
            drip(connection)
    assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]


def test_a_client_that_does_not_read(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is larger than all buffers is given up, and its memory with it."""
    monkeypatch.setattr(protocol, "READ_S", SHORT_S)
    code = b"# " + b"x" * 990_000 + b"\n"
    submission_id = gate.submit(code=code).json["details"]["id"]
    request = f"GET /user/submissions/{submission_id} HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", gate.port))
        # Several answers: the kernel's own buffers hold more than one.
        connection.sendall(request.encode() * 8)
        looking = select.poll()
        looking.register(connection, 0)
        (event,) = looking.poll(PATIENCE_S * 1000)
        assert event[1] & (select.POLLERR | select.POLLHUP)
    assert gate.ask("GET", "/health").status == 200


def test_what_is_no_request_gets_a_detail(gate: Gate) -> None:
    """As all errors."""
    with socket.create_connection(("127.0.0.1", gate.port)) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        got = ended(connection)
    assert got.startswith(b"HTTP/1.1 400")
    assert got.endswith(b'\r\n\r\n{"detail":"This is no HTTP request that can be read"}')


def test_a_request_that_is_on_the_way_is_answered_before_the_end(gate: Gate) -> None:
    """A client that connected just before a restart would else end with an error."""
    assert gate.server is not None
    with socket.create_connection(("127.0.0.1", gate.port)) as connection:
        # It is accepted: a later one is answered.
        assert gate.ask("GET", "/health").status == 200
        gate.server.should_exit = True
        wait_until(lambda: refused(gate.port), "the gateway takes no connection any more")
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert ended(connection).endswith(b'{"status":"ok"}')


def refused(port: int) -> bool:
    """Whether nothing listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False
