"""Clients that send or read slowly or late. One that sends no head is the business of a proxy."""

from __future__ import annotations

import contextlib
import socket

import pytest

from runner.base.model import Verdict
from runner.extras.gateway import limits, server, submissions
from tests.integration.extras.gateway.conftest import BOUNDARY, Gate, streamed
from tests.integration.store.conftest import result, run_record
from tests.support.waiting import PATIENCE_S, wait_until


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


def test_a_body_that_does_not_come(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """408, and nothing is stored."""
    monkeypatch.setattr(limits, "BODY_S", 0.5)
    head = (
        "POST /submission/identity/CPU/test HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: 900000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")
    assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]


def test_bodies_that_do_not_come_keep_no_file_of_others_waiting(gate: Gate) -> None:
    """Neither forms, which anybody may send, nor the files of one user, who is told."""
    for path, more, refused in (
        ("/receipts", "Origin: http://x\r\n", False),
        ("/login", "Origin: http://x\r\n", False),
        ("/submission/identity/CPU/test", "X-Popcorn-Cli-Id: bob-token\r\n", True),
        ("/identity/CPU/test", "X-Popcorn-Cli-Id: bob-token\r\n", True),
        ("/send", "X-Popcorn-Cli-Id: bob-token\r\n", False),
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Type: text/plain\r\nContent-Length: 9\r\n\r\n"
        with contextlib.ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S))
                for _ in range(limits.BODIES)
            ]
            for connection in connections:
                connection.sendall(head.encode())
            if refused:
                assert connections[-1].recv(65536).startswith(b"HTTP/1.1 429"), path
            assert gate.submit().status == 202, path


def large_result(gate: Gate) -> str:
    """Where one of Ada's is that is more than the buffers of a connection take."""
    path = f"/user/submissions/{gate.submit().json['details']['id']}"
    cases = {f"test.{index}.spec": "ü" * 20_000 for index in range(150)}
    gate.bench.store.complete(
        gate.bench.claim(), result(Verdict.ACCEPTED, run_record("test", result={"test-count": "150", **cases}))
    )
    return path


def test_a_client_that_reads_no_answer_loses_its_connection(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else unread answers would fill the memory; one that reads gets the whole answer."""
    monkeypatch.setattr(server, "UNREAD_S", 0.5)
    path, running = large_result(gate), gate.server
    assert running is not None
    with socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: not running.server_state.connections, "the gateway has ended it")
        got = len(ended(connection))
    monkeypatch.undo()
    assert got < len(gate.ask("GET", path, cli="ada-token").body)


def test_results_that_are_not_read(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few of one user are refused, or their stream goes on, until the connections have gone."""
    monkeypatch.setattr(submissions, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(submissions, "TURN_S", 0.1)
    path = large_result(gate)
    with contextlib.ExitStack() as stack, streamed(gate.port, "test") as stream:
        for _ in range(limits.RESULTS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert gate.ask("GET", path, cli="ada-token").status == 429
        assert gate.ask("GET", path, cli="bob-token").status == 403
        gate.bench.store.complete(gate.bench.claim(), result(Verdict.ACCEPTED, run_record("test")))
        for _ in range(5):
            stream.got = b""
            stream.until(b"event: ")
            assert b"event: result" not in stream.got
        stack.close()
        stream.until(b"event: result")
    wait_until(lambda: gate.ask("GET", path, cli="ada-token").status == 200, "all are free again")


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
