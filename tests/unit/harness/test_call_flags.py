"""Calls that begin and end by flags, and the copies that are made at their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from tasks.harness.judge.faults import Fault
from tasks.harness.judge.sched_delay import SchedDelay
from tasks.harness.judge.snapshots import WorkerMemory
from tasks.harness.shared.arenas import ALIGN_BYTES, PAGE_BYTES, Arena
from tasks.harness.shared.call_flags import CallFlags
from tests.support.mappings import mapped_kb


def _other_end(flags: CallFlags) -> CallFlags:
    """The same page, mapped once more as the other process does."""
    return CallFlags(Arena(os.dup(flags.fd), PAGE_BYTES))


def test_each_side_sees_what_the_other_says() -> None:
    """A call is released by one side and finished by the other, and an earlier number is not this one."""
    judge = CallFlags.create()
    worker = _other_end(judge)

    assert not worker.released(1, spin_ns=0)
    judge.release(1)
    assert worker.released(1, spin_ns=0)
    assert not worker.released(2, spin_ns=1000)
    assert not judge.finished(1, spin_ns=0)
    worker.finish(1)
    assert judge.finished(1, spin_ns=0)


def test_what_is_said_while_one_looks_is_seen() -> None:
    """Looking goes on until it is there."""
    judge = CallFlags.create()
    worker = _other_end(judge)
    threading.Timer(0.02, judge.release, args=(7,)).start()

    assert worker.released(7, spin_ns=60_000_000_000)


def test_a_withdrawn_call_is_not_waited_for() -> None:
    """Looking ends at once, and the call has not begun; the next one is another."""
    judge = CallFlags.create()
    worker = _other_end(judge)
    threading.Timer(0.02, judge.withdraw, args=(3,)).start()

    assert not worker.released(3, spin_ns=60_000_000_000)
    assert worker.withdrawn(3)
    assert not worker.withdrawn(4)
    judge.release(4)
    assert worker.released(4, spin_ns=0)


def test_a_dry_run_is_asked_for_and_ends() -> None:
    """Before the call of its number is released, and for that call alone; a withdrawn call has none."""
    judge = CallFlags.create()
    worker = _other_end(judge)

    judge.ask_dry_run(5)
    assert worker.dry_run_asked(5, spin_ns=0)
    assert not worker.dry_run_asked(6, spin_ns=1000)
    assert not worker.released(5, spin_ns=0)
    assert not judge.dry_run_ended(5, spin_ns=1000)
    worker.end_dry_run(5)
    assert judge.dry_run_ended(5, spin_ns=0)
    judge.withdraw(6)
    assert not worker.dry_run_asked(6, spin_ns=60_000_000_000)


def test_a_page_cannot_be_made_smaller() -> None:
    """A worker that truncates the page would kill the judge."""
    flags = CallFlags.create()

    with pytest.raises(PermissionError):
        os.ftruncate(flags.fd, 0)


@pytest.fixture
def own_memory() -> Iterator[WorkerMemory]:
    """This process's memory, as the judge reads a worker's."""
    memory = WorkerMemory(os.open("/proc/self/mem", os.O_RDONLY))
    yield memory
    memory.close()


@pytest.mark.parametrize("nbytes", [5000, (3 << 20) + 1])
def test_a_frozen_output_does_not_change(own_memory: WorkerMemory, nbytes: int) -> None:
    """What is written afterwards is not in the copy, in small pages or in huge ones."""
    output = torch.full((nbytes,), 7, dtype=torch.uint8)
    frozen = own_memory.freeze([(output.data_ptr(), nbytes)], input_bytes=0, memory_bytes=16 << 20)
    output.fill_(9)
    assert bool((frozen.bytes_at(0, nbytes) == 7).all())
    with pytest.raises(ValueError, match="not inside"):
        frozen.bytes_at(frozen.size - 1, 2)


def test_a_large_copy_lies_in_huge_pages(own_memory: WorkerMemory) -> None:
    """Where the kernel has some for those who ask."""
    nbytes = (3 << 20) + 1
    output = torch.full((nbytes,), 7, dtype=torch.uint8)
    frozen = own_memory.freeze([(output.data_ptr(), nbytes)], input_bytes=0, memory_bytes=16 << 20)
    if "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        assert mapped_kb(frozen.bytes_at(0, 1).data_ptr(), "AnonHugePages") >= 2 << 10
    assert frozen.size < nbytes + ALIGN_BYTES
    with pytest.raises(ValueError, match="not inside"):
        frozen.bytes_at(frozen.size, 1)


def test_an_output_that_is_being_written_is_not_frozen(
    own_memory: WorkerMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that differ between a look and the copy are the submission's doing."""
    output = torch.full((64,), 7, dtype=torch.uint8)
    preadv = os.preadv

    def write_after(fd: int, into: Sequence[memoryview], address: int) -> int:
        count = preadv(fd, into, address)
        output.add_(1)
        return count

    monkeypatch.setattr(os, "preadv", write_after)
    with pytest.raises(Fault, match="still being written") as caught:
        own_memory.freeze([(output.data_ptr(), 64)], input_bytes=0, memory_bytes=1 << 20)
    assert caught.value.verdict == "rejected"


def test_delays_only_grow_and_are_unknown_of_the_dead() -> None:
    """A total is there, grows, and nothing is known once a watched process is gone."""
    delays = SchedDelay()
    before = delays.total_ns()
    assert before is not None
    since = delays.since(before)
    assert since is not None
    assert since >= 0
    assert delays.since(None) is None
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    delays.watch(pid)
    assert delays.total_ns() is not None
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert delays.total_ns() is None
