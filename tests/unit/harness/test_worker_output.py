"""What the judge knows of a worker beside its answers, where workers follow each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sandbox.protocol import encode
from tasks.harness.judge.worker_output import FLOOD_BYTES, Collector
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture(name="pipes")
def _pipes() -> Iterator[SimpleNamespace]:
    """A collector that was started, and the ends to write to."""
    ends = [os.pipe() for _ in range(3)]
    (out, _), (err, _), (init, _) = ends
    collector = Collector(stdout_fd=out, stderr_fd=err, init_fd=init)
    collector.start()
    yield SimpleNamespace(collector=collector, stdout=ends[0][1], init=ends[2][1])
    collector.close()
    for pair in ends:
        for descriptor in pair:
            os.close(descriptor)


def _end(pipes: SimpleNamespace, number: int, signal: int) -> None:
    os.write(pipes.init, encode({"type": "worker_exit", "rank": number, "exit_code": None, "signal": signal}))


def test_a_flood_is_not_the_next_worker_s(pipes: SimpleNamespace) -> None:
    """Also what was still in the pipe, which is read to its end when the next worker is there."""
    collector: Collector = pipes.collector
    block = bytes(1 << 16)
    usual = fcntl.fcntl(pipes.stdout, fcntl.F_GETPIPE_SZ)
    fcntl.fcntl(pipes.stdout, fcntl.F_SETPIPE_SZ, 4 * usual)
    for _ in range(FLOOD_BYTES // len(block)):
        os.write(pipes.stdout, block)
    os.write(pipes.stdout, block)
    wait_until(lambda: collector.flooded, "the flood is noticed")
    # More than a pipe of the usual size holds.
    os.write(pipes.stdout, bytes(2 * usual))
    collector.expect_worker(1)
    assert not collector.flooded
    assert fcntl.fcntl(pipes.stdout, fcntl.F_GETPIPE_SZ) == usual
    os.write(pipes.stdout, b"the next one's")
    wait_until(lambda: collector.take().stdout == "the next one's", "the next worker's output is read")
    for _ in range(FLOOD_BYTES // len(block) - 1):
        os.write(pipes.stdout, block)
    collector.take()
    assert not collector.flooded, "the first flood's bytes count for the second worker"


def test_the_end_of_a_worker_is_not_the_next_one_s(pipes: SimpleNamespace) -> None:
    """Whether it is heard before the next worker is there or after."""
    collector: Collector = pipes.collector
    _end(pipes, 0, 9)
    assert collector.wait_exit(PATIENCE_S) is not None
    collector.expect_worker(1)
    _end(pipes, 0, 9)
    _end(pipes, 1, 11)
    ended = collector.wait_exit(PATIENCE_S)
    assert ended is not None
    assert (ended.rank, ended.signal) == (1, 11)


def test_an_end_that_is_heard_early_is_kept(pipes: SimpleNamespace) -> None:
    """A worker may die before the judge has been given its socket."""
    collector: Collector = pipes.collector
    _end(pipes, 1, 11)
    assert collector.wait_exit(PATIENCE_S) is not None
    collector.expect_worker(1)
    ended = collector.wait_exit(0)
    assert ended is not None
    assert ended.signal == 11
    assert os.eventfd_read(collector.wake_fd)
