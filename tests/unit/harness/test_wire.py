"""Framing between judge and worker, in the face of a worker that may send anything."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tasks.harness.shared.wire import Channel, Interrupted, PeerClosed, WireViolation, encode
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a socketpair."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    yield pair
    for end in pair:
        end.close()


def _judge(sock: socket.socket, wake_fd: int | None = None) -> Channel:
    return Channel(sock, max_bytes=1000, accept_descriptors=False, wake_fd=wake_fd)


def _worker(sock: socket.socket) -> Channel:
    return Channel(sock, max_bytes=1 << 24, accept_descriptors=True, wake_fd=None)


def _deadline(seconds: float = PATIENCE_S) -> int:
    return time.monotonic_ns() + round(seconds * 1e9)


def test_message_and_descriptors_arrive(ends: tuple[socket.socket, socket.socket]) -> None:
    """Messages keep their order and their descriptors, also when they arrive together."""
    judge, worker = _judge(ends[0]), _worker(ends[1])
    read, write = os.pipe()
    judge.send(encode({"op": "first"}))
    judge.send(encode({"op": "second", "n": 1}, descriptors=1), (write,))
    judge.send(encode({"op": "third"}))

    assert worker.receive(deadline_ns=_deadline()) == ({"op": "first"}, [])
    message, descriptors = worker.receive(deadline_ns=_deadline())
    assert message == {"op": "second", "n": 1}
    os.write(descriptors[0], b"through")
    assert os.read(read, 10) == b"through"
    assert worker.receive(deadline_ns=_deadline(), spin_ns=1000)[0] == {"op": "third"}
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)


def test_large_message_crosses_a_small_buffer(ends: tuple[socket.socket, socket.socket]) -> None:
    """A message larger than the socket's buffer is sent in pieces while the other side reads."""
    judge, worker = _judge(ends[0]), _worker(ends[1])
    text = "x" * (4 << 20)
    sender = threading.Thread(target=judge.send, args=(encode({"op": "load", "text": text}),))
    sender.start()
    message, _ = worker.receive(deadline_ns=_deadline())
    sender.join()

    assert message["text"] == text


@pytest.mark.parametrize(
    "data",
    [
        b"check: pass\n",
        struct.pack("!4sIB", b"KRW1", 1001, 0),
        struct.pack("!4sIB", b"KRW1", 2, 1) + b"{}",
        struct.pack("!4sIB", b"KRW1", 2, 0) + b"{}",
        struct.pack("!4sIB", b"KRW1", 4, 0) + b"[17]",
        struct.pack("!4sIB", b"KRW1", 8, 0) + b'{"op":1}',
        struct.pack("!4sIB", b"KRW1", 3, 0) + b"\xff\xfe\xfd",
        struct.pack("!4sIB", b"KRW1", 1000, 0) + b"[" * 1000,
        struct.pack("!4sIB", b"KRW1", 900, 0) + b'{"op":"x","n":' + b"9" * 885 + b"}",
    ],
    ids=["text", "oversized", "descriptors", "no op", "list", "op no text", "not utf-8", "nested", "huge int"],
)
def test_garbage_is_a_violation(ends: tuple[socket.socket, socket.socket], data: bytes) -> None:
    """Whatever is no message raises the one error the judge turns into a verdict, or is plain data."""
    judge = _judge(ends[0])
    ends[1].sendall(data)

    if b"999" in data:
        assert judge.receive(deadline_ns=_deadline())[0]["op"] == "x"
    else:
        with pytest.raises(WireViolation):
            judge.receive(deadline_ns=_deadline())


def test_judge_takes_no_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    """Descriptors a worker sends are closed by the kernel, not by luck."""
    judge = _judge(ends[0])
    read, write = os.pipe()
    socket.send_fds(ends[1], [encode({"op": "done"})], [write])
    os.close(write)

    assert judge.receive(deadline_ns=_deadline()) == ({"op": "done"}, [])
    assert os.read(read, 1) == b""
    os.close(read)


def test_end_of_the_other_side(ends: tuple[socket.socket, socket.socket]) -> None:
    """A worker that is gone is noticed by reading and by writing, also in the middle of a message."""
    judge = _judge(ends[0])
    ends[1].sendall(encode({"op": "done"})[:7])
    ends[1].close()

    with pytest.raises(PeerClosed):
        judge.receive(deadline_ns=_deadline())
    with pytest.raises(PeerClosed):
        judge.send(encode({"op": "arm"}))


def test_waiting_ends_at_the_deadline_or_when_woken(ends: tuple[socket.socket, socket.socket]) -> None:
    """When the wake-up descriptor is readable and nothing else is. A worker that does not read holds no judge."""
    wake = os.eventfd(0)
    judge = _judge(ends[0], wake)
    with pytest.raises(TimeoutError):
        judge.receive(deadline_ns=_deadline(0.01))

    os.eventfd_write(wake, 1)
    with pytest.raises(Interrupted):
        judge.receive(deadline_ns=_deadline())
    ends[1].sendall(encode({"op": "done"}))
    assert judge.receive(deadline_ns=_deadline())[0] == {"op": "done"}
    os.close(wake)
    with pytest.raises(TimeoutError):
        _judge(ends[0]).send(encode({"op": "load", "text": "x" * (8 << 20)}), deadline_ns=_deadline(0.05))
