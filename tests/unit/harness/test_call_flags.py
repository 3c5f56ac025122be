"""Calls that begin and end by flags, what the worker says of their outputs, and the copies that the judge takes."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.harness.judge import snapshots
from tasks.harness.judge.activity import Activity, Look
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.sched_delay import SchedDelay
from tasks.harness.judge.snapshots import (
    Copy,
    Filled,
    Pace,
    Taken,
    Unreadable,
    WorkerMemory,
    take,
    take_copied,
    take_like,
)
from tasks.harness.shared.arenas import PAGE_BYTES, Arena, aligned
from tasks.harness.shared.call_flags import FLAGS_BYTES, MAX_PARTS, CallFlags
from tasks.harness.shared.values import Outgoing, Placed, Snapshot


def _other_end(flags: CallFlags) -> CallFlags:
    """The same page, mapped once more as the other process does."""
    return CallFlags(Arena(os.dup(flags.fd), FLAGS_BYTES))


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


@pytest.mark.parametrize("count", [0, 1, 3, MAX_PARTS])
def test_a_worker_delivers_addresses_and_a_claim(count: int) -> None:
    """As many as the judge expects: no other number ends a call, and a call by message delivers none of any number."""
    judge = CallFlags.create()
    worker = _other_end(judge)
    addresses = [(1 << 64) - 1 - number for number in range(count)]
    others = {0, 1, 2, 4, MAX_PARTS} - {count}
    for claim_ns in ((1 << 62) + 5, 2):
        worker.deliver(addresses, claim_ns=claim_ns)
        assert judge.delivered(count) == (addresses, claim_ns)
        assert [judge.delivered(other) for other in others] == [None] * len(others)
        worker.deliver_in_message()
        assert [judge.delivered(other) for other in (count, *others)] == [None] * (1 + len(others))


@pytest.fixture
def own_memory() -> Iterator[WorkerMemory]:
    """This process's memory, as the judge reads a worker's."""
    memory = WorkerMemory(os.open("/proc/self/mem", os.O_RDONLY))
    yield memory
    memory.close()


class Memory:
    """Memory whose reads are noted, and may change something."""

    def __init__(self, data: bytes = b"", *, during: Callable[[], None] = lambda: None) -> None:
        self.data = bytearray(data)
        self.reads: list[tuple[int, int]] = []
        self._during = during

    def read_into(self, into: memoryview, offset: int) -> None:
        """See Readable."""
        self.reads.append((offset, len(into)))
        into[:] = self.data[offset : offset + len(into)]
        self._during()


def _copied(copy: Copy) -> list[bytes]:
    return [bytes(tensor.numpy()) for tensor in copy.tensors]


SIZES = st.one_of(
    st.integers(0, 9),
    st.integers(4_000, 4_200),
    st.integers(60_000, 70_000),
    st.sampled_from([PAGE_BYTES, 64 * PAGE_BYTES, 64 * PAGE_BYTES + 1, (2 << 20) + 3]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(SIZES, max_size=6))
def test_every_byte_of_an_output_is_copied_once(sizes: list[int]) -> None:
    """Of any number of tensors of any size, and to its own place: blocks neither overlap nor leave anything out."""
    memories = [Memory(os.urandom(size)) for size in sizes]
    copy = Copy(sizes)
    copy.fill([(memory, 0) for memory in memories])
    assert _copied(copy) == [bytes(memory.data) for memory in memories]
    for memory, size in zip(memories, sizes, strict=True):
        end = 0
        for offset, nbytes in sorted(memory.reads):
            assert offset == end
            end += nbytes
        assert end == size


@pytest.mark.parametrize("sizes", [(0,), (1, 5_000), (100, 0, (3 << 20) + 1)])
def test_a_copy_does_not_change_with_its_output(own_memory: WorkerMemory, sizes: Sequence[int]) -> None:
    """What is written afterwards is not in it, in small pages or in huge ones."""
    outputs = [torch.full((size,), 7, dtype=torch.uint8) for size in sizes]
    copy = Copy(sizes)
    copy.fill([(own_memory, output.data_ptr()) for output in outputs])
    for output in outputs:
        output.fill_(9)
    assert _copied(copy) == [b"\x07" * size for size in sizes]
    assert len({tensor.untyped_storage().data_ptr() for tensor in copy.tensors if tensor.numel()}) == sum(
        size > 0 for size in sizes
    )


def _order(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The order in which a copy of such an output reads its blocks: tensor and offset."""
    order: list[tuple[int, int]] = []
    copy = Copy(sizes)
    memories = [Memory(bytes(size)) for size in sizes]
    for number, memory in enumerate(memories):
        memory._during = lambda number=number, memory=memory: order.append((number, memory.reads[-1][0]))  # type: ignore[misc]  # bound now
    copy.fill([(memory, 0) for memory in memories])
    return order


@pytest.mark.parametrize("sizes", [(5_000,), (1 << 20,), (10,) * 500, (1 << 20, 64 << 10, 8)])
def test_the_order_of_blocks_is_secret(sizes: Sequence[int]) -> None:
    """It differs from copy to copy, any block may be the first or the last, and boundaries inside of tensors differ."""
    orders = [_order(sizes) for _ in range(40)]
    assert len({tuple(order) for order in orders}) > 20
    assert len({order[0] for order in orders}) > 1
    assert len({order[-1] for order in orders}) > 1
    assert not any(order == sorted(order) for order in orders if len(order) > 20)
    if max(sizes) > PAGE_BYTES:
        boundaries = [min(offset for part, offset in order if part == 0 and offset) for order in orders]
        assert len(set(boundaries)) > 20


def test_an_output_of_any_size_has_as_many_blocks_as_hide_a_write() -> None:
    """About 64 where it is large, and at least so many above, so that a late writer knows little of each byte."""
    for nbytes in (64 * PAGE_BYTES, 1 << 20, 2 << 20, 32 << 20):
        assert len(_order([nbytes])) >= 30, nbytes
    # Larger blocks would take longer, in which the worker could write what comes after.
    assert len(_order([32 << 20])) > 1_000


class Clock:
    """Time that passes when it is looked at."""

    def __init__(self, steps_ns: Iterator[int]) -> None:
        self.now_ns = 1_000_000
        self._steps_ns = steps_ns

    def __call__(self) -> int:
        """The time after the next step."""
        self.now_ns += next(self._steps_ns)
        return self.now_ns


def _fill(copy: Copy, sizes: Sequence[int], clock: Clock) -> Filled:
    """Copy an output of these sizes by that clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "time", SimpleNamespace(perf_counter_ns=clock))
        return copy.fill([(Memory(bytes(size)), 0) for size in sizes])


def _ended_ns(
    sizes: Sequence[int], steps_ns: Iterator[int], pace: Pace | None = None, *, is_trusted: bool = False
) -> tuple[int, int]:
    """When a call is over, and when its copy is, both from the beginning."""
    clock = Clock(steps_ns)
    began_ns = clock.now_ns
    filled = _fill(Copy(sizes, pace=pace, is_trusted=is_trusted), sizes, clock)
    assert filled.copy_ns == max(clock.now_ns - filled.ended_ns, 0)
    return filled.ended_ns - began_ns, clock.now_ns - began_ns


@pytest.mark.parametrize("sizes", [(64,), (8,) * 300, (0,), ()])
def test_a_small_output_ends_its_call_when_it_is_there(sizes: Sequence[int]) -> None:
    """All of its copy is in the span, however little each tensor takes."""
    ended_ns, copied_ns = _ended_ns(sizes, itertools.repeat(700))
    assert ended_ns == copied_ns == 700 * max(sum(size > 0 for size in sizes), 1)


@pytest.mark.parametrize(("step_ns", "ends_first"), [(25_000, True), (26_000, True), (30_000, False)])
def test_a_large_output_ends_its_call_with_its_first_block(step_ns: int, *, ends_first: bool) -> None:
    """What the judge usually needs to read the others is not the kernel's time; reading slowly throughout is.

    However alike all blocks are: 10 µs and 4 µs a page are the most, and 3 % and 20 µs beside in all.
    """
    ended_ns, copied_ns = _ended_ns((1 << 20,), itertools.repeat(step_ns))
    assert ended_ns == (step_ns if ends_first else copied_ns)
    assert copied_ns > 60 * 25_000


@pytest.mark.parametrize("stalls", [1, 3, 20])
def test_a_block_that_stalls_ends_the_call_when_it_is_there(stalls: int) -> None:
    """Whoever keeps the judge from reading has all in its time that was copied until then."""
    steps_ns = itertools.chain([5_000] * 21, [1_000_000] * stalls, itertools.repeat(5_000))
    ended_ns, _ = _ended_ns((64 * PAGE_BYTES,), steps_ns)
    assert ended_ns == 21 * 5_000 + 1_000_000 * stalls


@pytest.mark.parametrize("is_trusted", [False, True])
@pytest.mark.parametrize(("blocks", "wait_ns"), [(1, 20_000), (1, 7_000), (3, 11_000), (20, 6_000)])
def test_a_short_wait_for_a_block_counts(blocks: int, wait_ns: int, *, is_trusted: bool) -> None:
    """A worker may write meanwhile: all beyond three times the middle block and 3 µs is in the span.

    In that of a control call, too.
    """
    steps_ns = itertools.chain([1_000] * 5, [1_000 + wait_ns] * blocks, itertools.repeat(1_000))
    ended_ns, copied_ns = _ended_ns((64 * PAGE_BYTES,), steps_ns, is_trusted=is_trusted)
    assert ended_ns == 1_000 + blocks * (wait_ns - 5_000)
    assert ended_ns < copied_ns - 58_000


@pytest.mark.parametrize(
    ("size", "is_trusted", "stall_ns", "look_ns", "looks"),
    [
        (2 << 20, False, 0, 0, [1]),
        (2 << 20, False, 1_000_000, 0, [1, None]),
        (2 << 20, True, 1_000_000, 0, [1]),
        (1 << 20, False, 0, 0, [None]),
        (1 << 20, True, 0, 0, [1]),
        (100_000, True, 1_000_000, 0, [1]),
        (64, False, 0, 0, [None]),
        (64, True, 0, 0, [None]),
        # A worker that takes the judge's core during the look lengthens its own span, as during any block.
        (2 << 20, False, 0, 9_000, [1]),
        (2 << 20, False, 0, 1_000_000, [1, None]),
    ],
)
def test_a_long_copy_adds_no_delay_to_its_call(
    size: int, *, is_trusted: bool, stall_ns: int, look_ns: int, looks: list[int | None]
) -> None:
    """What judge and worker have waited until the first block counts, unless a stall moves the end of the call.

    A stall moves no end of a control call: it is counted, and says nothing of the hand-over.
    """
    copy = Copy((size,), is_trusted=is_trusted)
    blocks = len(copy._blocks)
    clock = Clock(
        itertools.chain([1_000], itertools.repeat(1_000, blocks // 2), [1_000 + stall_ns], itertools.repeat(1_000))
    )
    asked: list[int] = []

    def delayed() -> int:
        clock.now_ns += look_ns
        asked.append(len(asked) + 1)
        return asked[-1]

    copy.delayed = delayed
    began_ns = clock.now_ns
    filled = _fill(copy, (size,), clock)
    assert (copy.delayed_ns, len(asked)) == (looks[-1], sum(look is not None for look in looks))
    assert filled.stalled is (stall_ns + look_ns > 9_000)
    moves = filled.stalled and not is_trusted
    assert (filled.ended_ns - began_ns > 1_000 + look_ns) is moves
    assert (0 < filled.copied_ns < filled.ended_ns - began_ns - 0.9 * (stall_ns + look_ns)) is moves


class Scripted(Activity):
    """Processes that sleep from one of the looks on, and then run again or not."""

    def __init__(
        self, clock: Clock, *, asleep_at: int, takes_ns: int = 10_000, new: int = 0, runs: bool = False
    ) -> None:
        self._clock = clock
        self._asleep_at = asleep_at
        self._takes_ns = takes_ns
        self._new = new
        self._runs = runs
        self.looks = 0

    def look(self, *, may_list: bool = True) -> Look | None:
        """See Activity."""
        assert not may_list
        self._clock.now_ns += self._takes_ns
        self.looks += 1
        return None if self.looks == self._new else Look(ran_ns={1: 0}, asleep=self.looks >= self._asleep_at)

    def idle_since(self, before: Look | None) -> bool:
        """See Activity."""
        assert before is not None
        assert before.asleep
        return not self._runs


@pytest.mark.parametrize(
    ("size", "activity", "looks", "late_ns"),
    [
        (9 << 20, {"asleep_at": 1}, 1, 10_000),
        (9 << 20, {"asleep_at": 4}, 4, 4 * 10_000 + 3 * 1_000 + 3 * 1_000),
        # What ran meanwhile could write, and a worker that does not sleep may at any time.
        (9 << 20, {"asleep_at": 2, "runs": True}, 2, None),
        (9 << 20, {"asleep_at": 5}, 4, None),
        # It has started a thread that is not known, or has made the looks take long: almost no block has been read.
        (9 << 20, {"asleep_at": 2, "new": 1}, 1, None),
        (9 << 20, {"asleep_at": 1, "takes_ns": 110_000}, 1, None),
        (9 << 20, {"asleep_at": 4, "takes_ns": 40_000}, 3, None),
        # Looks would take a large part of the copy.
        (4 << 20, {"asleep_at": 1}, 0, None),
    ],
)
@pytest.mark.parametrize("stall_ns", [0, 1_000_000])
def test_a_worker_that_sleeps_writes_nothing_late(
    size: int, activity: dict[str, Any], looks: int, late_ns: int | None, stall_ns: int
) -> None:
    """Only before it slept; and no block waited for it then, so that what took long ends no call."""
    copy = Copy((size,))
    blocks = len(copy._blocks)
    clock = Clock(itertools.chain(itertools.repeat(1_000, blocks // 2), [1_000 + stall_ns], itertools.repeat(1_000)))
    takes_ns = activity.get("takes_ns", 10_000)
    copy.activity = scripted = Scripted(clock, **activity)
    began_ns = clock.now_ns
    filled = _fill(copy, (size,), clock)
    assert scripted.looks == looks
    if late_ns is None:
        assert filled.late_ns == filled.copy_ns
        # A long look is in the span.
        assert filled.stalled is (stall_ns > 0 or looks * takes_ns > 100_000)
        assert filled.stalled is (filled.ended_ns > began_ns + 1_000)
    else:
        # One read of the clock is at the end of each look.
        assert filled.late_ns == late_ns + 1_000
        assert not filled.stalled
        assert filled.ended_ns == began_ns + 1_000
        assert filled.copy_ns > (blocks - 1) * 1_000


@pytest.mark.parametrize("learned_pages", [4, 2, 8])
def test_reading_that_is_slower_than_of_trusted_outputs_ends_the_call_with_its_last_block(learned_pages: int) -> None:
    """Three times as slow and 3 µs beside, for a page or for as many as the nearest that are known had."""
    pace = Pace()
    pages, learned_ns = 4, 2_000
    for _ in range(6):
        _ended_ns((64 * learned_pages * PAGE_BYTES,), itertools.repeat(learned_ns), pace, is_trusted=True)
        pace.settle(counts=True)
    usual_ns = learned_ns * max(pages // learned_pages, 1)
    for step_ns, is_slow in ((3 * usual_ns + 4_000, True), (3 * usual_ns + 2_900, False)):
        ended_ns, copied_ns = _ended_ns((64 * pages * PAGE_BYTES,), itertools.repeat(step_ns), pace)
        assert (ended_ns == copied_ns) is is_slow


@pytest.mark.parametrize(
    ("count", "took_ns", "counts"),
    [(5, 100, True), (64, 1_000_000, True), (64, 100, False)],
    ids=["few", "slow", "disturbed"],
)
def test_few_trusted_outputs_slow_ones_and_those_of_disturbed_calls_set_no_pace(
    count: int, took_ns: float, counts: bool
) -> None:
    """Less is known of the machine then than the fixed limits say."""
    pace = Pace()
    usual_ns = pace.most_ns(4)
    for _ in range(count):
        pace.learn(4, took_ns)
        pace.settle(counts=counts)
    assert pace.most_ns(4) == usual_ns


def _take_like(memory: Memory, value: torch.Tensor) -> Taken:
    layout = Snapshot(Outgoing.describe(value, {}).tree, []).layout
    assert layout is not None
    return take_like(layout, Copy(layout.sizes), [(memory, 0)])


@pytest.mark.parametrize("size", [64, 100_000])
def test_an_output_that_is_still_changing_is_rejected(size: int) -> None:
    """Bytes that differ between the copy and a later look are the submission's doing."""
    memory = Memory(bytes(size))

    def write() -> None:
        memory.data = bytearray([memory.data[0] + 1]) * size

    assert _take_like(memory, torch.zeros(size, dtype=torch.uint8)).output_bytes == aligned(size)
    memory._during = write
    with pytest.raises(Fault, match="still being written") as caught:
        _take_like(memory, torch.zeros(size, dtype=torch.uint8))
    assert caught.value.verdict == "rejected"


def test_memory_that_is_gone_after_the_copy_changes_nothing() -> None:
    """The judge has what it uses; only what it sees differ is held against a submission."""
    memory = Memory(bytes(100_000))
    reads = memory.read_into
    copy = Copy([100_000])
    copy.fill([(memory, 0)])

    def gone(into: memoryview, offset: int) -> None:
        raise Unreadable

    memory.read_into = gone  # type: ignore[method-assign]  # for the second look
    copy.require_settled([(memory, 0)])
    memory.read_into = reads  # type: ignore[method-assign]  # see above
    copy.require_settled([(memory, 0)])


def test_what_is_taken_of_a_described_output_is_the_judges_own() -> None:
    """By message: from the arena of the output and that of the inputs, at the places that the worker describes."""
    tree = {
        "t": "list",
        "items": [
            {"t": "tensor", "dtype": "uint8", "shape": [5_000], "device": "cpu", "at": [-1, 512]},
            {"t": "tensor", "dtype": "uint8", "shape": [8], "device": "cpu", "at": [0, 8]},
        ],
    }
    with Arena.create(8_192) as output_arena, Arena.create(4_096) as inputs:
        output_arena.poison()
        inputs.poison()
        expected = [output_arena.bytes_at(512, 5_000).clone(), inputs.bytes_at(1_024 + 8, 8).clone()]
        taken = take(
            tree,
            inputs=inputs,
            placed=[Placed(offset=1_024, nbytes=16)],
            output_arena=output_arena,
            input_bytes=16,
            memory_bytes=1 << 20,
        )
        output_arena.poison()
        inputs.poison()
    value = taken.output.value()
    assert isinstance(value, list)
    assert [torch.equal(one, other) for one, other in zip(value, expected, strict=True)] == [True, True]
    assert (taken.output_bytes, taken.parts) == (aligned(5_000), 2)


def test_an_output_that_is_described_often_must_fit_into_memory() -> None:
    """Many descriptors of the same bytes do not multiply into more than a case may hold, copied or not."""
    node = {"t": "tensor", "dtype": "uint8", "shape": [4_096], "device": "cpu", "at": [-1, 0]}
    tree = {"t": "list", "items": [node] * 100}
    with pytest.raises(Fault) as caught, Arena.create(4_096) as arena:
        take(tree, inputs=arena, placed=(), output_arena=arena, input_bytes=0, memory_bytes=1 << 20)
    assert caught.value.verdict == "memory_limit"
    copied = torch.zeros(4_096, dtype=torch.uint8)
    with pytest.raises(Fault) as caught:
        take_copied(tree, [copied] * 100, input_bytes=0, memory_bytes=1 << 20)
    assert caught.value.verdict == "memory_limit"
    taken = take_copied(node, [copied], input_bytes=0, memory_bytes=1 << 20)
    copied.fill_(1)
    assert torch.equal(torch.as_tensor(taken.output.value()), torch.zeros(4_096, dtype=torch.uint8))
    assert (taken.output_bytes, taken.parts) == (4_096, 1)


@pytest.mark.parametrize("sizes", [[], [4_096, 1], [4_095], [1, 4_096], [2_048, 2_048]])
def test_memory_that_no_tensor_is_in_is_not_copied(sizes: Sequence[int]) -> None:
    """On a device the tensors of the description are the parts, in their order: others would give time."""
    node = {"t": "tensor", "dtype": "uint8", "shape": [4_096], "device": "cpu", "at": [-1, 0]}
    parts = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    with pytest.raises(Fault) as caught:
        take_copied(node, parts, input_bytes=0, memory_bytes=1 << 20)
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
