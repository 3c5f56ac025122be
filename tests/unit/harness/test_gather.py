"""Hearing several processes at once: order of arrival, grace after a failure, silence."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tasks.harness.judge.gather import gather
from tasks.harness.shared.wire import Channel, PeerClosed, WireViolation, encode
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def lines() -> Iterator[list[tuple[Channel, socket.socket]]]:
    """Three channels and the other end of each."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
    made = [(Channel(mine, max_bytes=1000, accept_descriptors=True, wake_fd=None), its) for mine, its in pairs]
    yield made
    for channel, its in made:
        channel.close()
        its.close()


def good(message: Mapping[str, Any]) -> bool:
    """Whether it is the answer that was due."""
    return bool(message["op"] == "fine")


def later(seconds: float = PATIENCE_S) -> int:
    """A deadline that no test reaches."""
    return time.monotonic_ns() + round(seconds * 1e9)


def test_who_answers_first_is_heard_first(lines: list[tuple[Channel, socket.socket]]) -> None:
    """Answers come in the order of their arrival, each with the index of its channel and its descriptors."""
    read, write = os.pipe()
    channels = [channel for channel, _ in lines]

    def answer() -> None:
        for index in (2, 0, 1):
            lines[index][1].sendmsg(
                [encode({"op": "fine", "n": index}, descriptors=index == 2)],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", write))] if index == 2 else [],
            )
            turns[index].wait(PATIENCE_S)

    turns = [threading.Event() for _ in lines]
    # No rank answers before the one before was heard: the predicate is called for each as it arrives.
    heard: list[int] = []

    def note(message: Mapping[str, Any]) -> bool:
        heard.append(message["n"])
        turns[message["n"]].set()
        return True

    thread = threading.Thread(target=answer)
    thread.start()
    found = gather(channels, good=note, deadline_ns=later(), spin_ns=1_000_000)
    thread.join()

    assert heard == [one.index for one in found] == [2, 0, 1]
    assert [len(one.descriptors) for one in found] == [1, 0, 0]
    os.write(found[0].descriptors[0], b"x")
    assert os.read(read, 1) == b"x"
    for descriptor in (read, write, *found[0].descriptors):
        os.close(descriptor)


@pytest.mark.parametrize("how", ["bad", "closed", "garbage"])
def test_a_failure_leaves_the_others_a_moment(lines: list[tuple[Channel, socket.socket]], how: str) -> None:
    """After the first bad answer the silent ones are waited for no longer than the grace; who answered counts."""
    lines[0][1].sendall(encode({"op": "fine"}))
    if how == "bad":
        lines[1][1].sendall(encode({"op": "failed"}))
    elif how == "closed":
        lines[1][1].close()
    else:
        lines[1][1].sendall(b"no message at all")

    found = {one.index: one for one in gather([c for c, _ in lines], good=good, deadline_ns=later(), grace_ns=1)}

    assert set(found) == {0, 1}
    assert found[0].message == {"op": "fine"}
    assert type(found[1].error) is {"bad": type(None), "closed": PeerClosed, "garbage": WireViolation}[how]


def test_a_wait_ends_with_the_wake_up_or_at_the_deadline(lines: list[tuple[Channel, socket.socket]]) -> None:
    """A descriptor that stays readable ends the wait after the grace, and what was said by then counts.

    Half a message is none; no rank is waited for beyond the deadline, but what has arrived by then is read.
    """
    wake, channels = os.eventfd(1), [channel for channel, _ in lines]
    lines[1][1].sendall(encode({"op": "fine"}))
    found = gather(channels, good=good, deadline_ns=later(), wake_fd=wake, grace_ns=1)
    assert [one.index for one in found] == [1]
    os.close(wake)
    lines[0][1].sendall(encode({"op": "fine"})[:-1])
    lines[2][1].sendall(encode({"op": "fine"}))
    found = gather(channels, good=good, deadline_ns=time.monotonic_ns() - 1)
    assert [one.index for one in found] == [2]
