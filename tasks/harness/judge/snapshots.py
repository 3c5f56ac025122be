"""The rule of the clock, and the one way to keep it. Every way to call takes its output here, and ends its span here.

**Nothing that arrives after the clock may decide.** What the judge uses of a call is in memory of its own when its
clock stops, or the time until it is there counts: dtypes, shapes, places, numbers, texts, the claim, the end itself.

The bytes of a large output take the judge longer to copy than many kernels run, and the worker runs meanwhile. So the
clock stops with the first block of the copy, and the order of all blocks is secret. A worker that writes a byte later
cannot know whether its block has been copied; each time it loses its verdict with the probability that it has. It could
also make the reading of a block wait until it is written. So what blocks take too long counts. Where that is much, the
stop moves to the end of the last such block, and a case in which that happens more often than in control calls has all
of its copies in its times (`course.with_copies`).

Runs in the process that holds the memory of the call: the judge, or a rank checker.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, Protocol, TypeGuard

import torch

from tasks.harness.shared.arenas import HUGE_PAGE_BYTES, PAGE_BYTES, Arena, aligned, bytes_at, size_for_later
from tasks.harness.shared.values import Layout, Placed, Region, Snapshot, regions
from tasks.harness.shared.wire import WireViolation

from .activity import Activity, Look
from .faults import Fault, tampered

#: Outputs of at most this size have one block for each tensor, which is in its span.
_AT_ONCE_BYTES = 4096
#: Larger ones have about this many blocks, of whole pages, ...
_BLOCKS = 64
#: ... and of at most this many.
_MOST_BLOCK_PAGES = 8
#: A block takes too long if it takes more than this multiple of the middle one of its copy, or of those of control
#: calls, and this much beside.
_LONG_FACTOR = 3
_LONG_NS = 3_000
#: The most for a block and for each of its pages, whatever control calls say. 0.4 to 2.5 µs a page are usual.
_BLOCK_NS = 10_000
_PAGE_NS = 4_000
#: Copies of control calls that a pace remembers.
_REMEMBERED = 64
#: Fewest copies that make a pace.
_FEWEST = 6
#: A copy stalls if its blocks are too long by more than this part of the rest, and this much beside.
_STALL_SHARE = 0.03
_STALL_NS = 20_000
#: Blocks that are read once more after the copy, to name an output that is still changing.
_SECOND_LOOKS = 8
#: After the first block of a larger copy the judge looks at the delays, which takes 3 µs: far less than such a copy.
#: Copies of control calls have that look at any size, as no worker writes into their outputs meanwhile.
_LOOKS_FROM_BYTES = 1 << 20
#: The most that a look takes of itself. What it takes beside is time that a worker may have made, as in any block.
_LOOK_NS = 10_000
#: Looks for a worker that sleeps, one after each of the first blocks of a copy that takes far longer: it needs 10 to 20
#: µs to fall asleep. It could write almost all blocks meanwhile, so they have to take less than this; else they are
#: time that it may have made, too.
_SLEEP_FROM_BYTES = 4 << 20
_SLEEP_LOOKS = 4
_SLEEP_NS = 100_000
_CLAIM_LIMIT_NS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Filled:
    """When a call was over whose output has been copied."""

    #: On time.perf_counter_ns; 0 where the judge's events on a device say it.
    ended_ns: int
    #: How long the copy went on after that, how much of this the worker could write in, and whether a block stalled.
    copy_ns: int = 0
    late_ns: int = 0
    stalled: bool = False
    #: How long it had gone on before, without what the blocks that stalled took longer than others.
    copied_ns: float = 0.0

    @property
    def slept(self) -> bool:
        """Whether the worker was seen to sleep until the end of the copy."""
        return self.late_ns < self.copy_ns


@dataclass(frozen=True, kw_only=True)
class Taken(Filled):
    """What the judge has of a call's output."""

    output: Snapshot
    #: Bytes of its tensors, each with the gap to the next one, but for those that lie in the inputs.
    output_bytes: int
    #: Tensors in the output.
    parts: int


class Readable(Protocol):
    """Memory that the worker can write, and the judge read."""

    def read_into(self, into: memoryview, offset: int) -> None:
        """Copy the bytes at an offset.

        Raises:
            Unreadable: there is no such memory.
        """


class Unreadable(Exception):
    """The worker has no memory at an address that it named, or it has ended."""


class WorkerMemory:
    """The worker's memory, read through a descriptor that it opened before a submission was loaded.

    The worker cannot change what is read by mapping, protecting or delaying anything, and it takes no part in the
    reading. It can make the reading wait: while one of its threads changes mappings, no other process may read them.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def read_into(self, into: memoryview, offset: int) -> None:
        """See Readable; an offset is an address."""
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self._fd, [into[done:]], offset + done)
            except (OSError, OverflowError) as error:
                raise Unreadable from error
            if not count:
                raise Unreadable
            done += count


class Pace:
    """How long a block of a copy takes: learned from outputs of trusted code, which nothing slows on purpose."""

    def __init__(self) -> None:
        #: By pages of a block: the middle block of each copy.
        self._took_ns: dict[int, deque[float]] = {}
        #: Pages and middle block of the last copy, until its call is known to count.
        self._last: tuple[int, float] | None = None

    def learn(self, pages: int, took_ns: float) -> None:
        """Remember the middle block of a copy, if its call counts (`settle`)."""
        self._last = pages, took_ns

    def settle(self, *, counts: bool) -> None:
        """Say whether the call of the last copy counts: a worker that was busy beside it could slow the copy."""
        if counts and self._last is not None:
            pages, took_ns = self._last
            self._took_ns.setdefault(pages, deque(maxlen=_REMEMBERED)).append(took_ns)
        self._last = None

    def most_ns(self, pages: int) -> float:
        """The longest that a block of so many pages may take."""
        most_ns = float(_BLOCK_NS + _PAGE_NS * pages)
        learned = [size for size, took_ns in self._took_ns.items() if len(took_ns) >= _FEWEST]
        if not learned:
            return most_ns
        nearest = min(learned, key=lambda size: abs(size - pages))
        usual_ns = median(self._took_ns[nearest]) * max(pages / nearest, 1.0)
        return min(_LONG_FACTOR * usual_ns + _LONG_NS, most_ns)


class Copy:
    """Memory for a copy of an output, and the secret order of its blocks. Best made before the clock runs."""

    def __init__(self, sizes: Sequence[int], *, pace: Pace | None = None, is_trusted: bool = False) -> None:
        """Allocate it for tensors of these sizes.

        `pace`: of control calls. `is_trusted`: this is the output of one: the pace learns from it, and no stall moves
        its end.
        """
        #: Tells how long judge and worker have waited for a core since the call began.
        self.delayed: Callable[[], int | None] | None = None
        #: The same when the call was over, if that was with the first block of a large output; else None.
        self.delayed_ns: int | None = None
        #: The worker's processes: the copy of a large output looks whether they sleep. None: it does not look.
        self.activity: Activity | None = None
        self._sizes = sizes
        self._pace = pace or Pace()
        self._is_trusted = is_trusted
        *self._offsets, size = accumulate(map(aligned, sizes), initial=0)
        self._memory = _new_memory(size)
        nbytes = sum(sizes)
        self._at_once = nbytes <= _AT_ONCE_BYTES
        self._looks = nbytes > (_AT_ONCE_BYTES if is_trusted else _LOOKS_FROM_BYTES)
        #: Whether it takes long enough to look what the worker does meanwhile.
        self.is_large = nbytes > _SLEEP_FROM_BYTES
        self._pages = min(-(-nbytes // (_BLOCKS * PAGE_BYTES)), _MOST_BLOCK_PAGES)
        #: Tensor, offset in it, and memory for the copy.
        self._blocks = _shuffled(
            [
                (part, start, self._memory[offset + start : offset + end])
                for part, (offset, nbytes) in enumerate(zip(self._offsets, sizes, strict=True))
                for start, end in _cut(nbytes, self._pages * PAGE_BYTES)
            ]
        )

    def fill(self, places: Sequence[tuple[Readable, int]]) -> Filled:
        """Copy every tensor from its memory and offset."""
        clock = time.perf_counter_ns
        read_ns: list[int] = []
        #: How long the looks after each of the first blocks took.
        looks_ns: list[int] = []
        asleep_ns = 0
        asleep: Look | None = None
        sleep_looks = _SLEEP_LOOKS if self.is_large else 0
        for part, start, into in self._blocks:
            memory, offset = places[part]
            memory.read_into(into, offset + start)
            read_ns.append(clock())
            if self._looks and self.delayed is not None and len(read_ns) == 1:
                self.delayed_ns = self.delayed()
                looks_ns = [clock() - read_ns[0]]
            if asleep is None and len(read_ns) <= sleep_looks and self.activity is not None:
                look, looked_ns = self.activity.look(may_list=False), clock()
                looks_ns[len(read_ns) - 1 :] = [looked_ns - read_ns[-1]]
                if look is None or looked_ns - read_ns[0] > _SLEEP_NS:
                    sleep_looks = 0
                elif look.asleep:
                    asleep, asleep_ns = look, looked_ns
        if self._at_once or not read_ns:
            return Filled(ended_ns=read_ns[-1] if read_ns else clock())
        if asleep is not None and self.activity is not None and self.activity.idle_since(asleep):
            return Filled(ended_ns=read_ns[0], copy_ns=read_ns[-1] - read_ns[0], late_ns=asleep_ns - read_ns[0])
        return self._timed(read_ns, looks_ns)

    def _timed(self, read_ns: Sequence[int], looks_ns: Sequence[int]) -> Filled:
        """By when each block was read; those after the first ones waited for looks."""
        took_ns = [later - earlier for earlier, later in pairwise(read_ns)]
        for number, look_ns in enumerate(looks_ns[: len(took_ns)]):
            took_ns[number] -= min(look_ns, _LOOK_NS)
        middle_ns = median(took_ns) if took_ns else 0
        limit_ns = min(_LONG_FACTOR * middle_ns + _LONG_NS, self._pace.most_ns(self._pages))
        if self._is_trusted:
            self._pace.learn(self._pages, middle_ns)
        too_long_ns = sum(each - limit_ns for each in took_ns if each > limit_ns)
        ended_ns = read_ns[0]
        copied_ns = 0.0
        stalled = too_long_ns > _STALL_SHARE * (read_ns[-1] - ended_ns - too_long_ns) + _STALL_NS
        if not stalled:
            # The worker may have written meanwhile, and may have made the judge wait.
            ended_ns += math.ceil(too_long_ns)
        elif not self._is_trusted:
            ended_ns = max(at for at, each in zip(read_ns[1:], took_ns, strict=True) if each > limit_ns)
            copied_ns = ended_ns - read_ns[0] - too_long_ns
            self.delayed_ns = None
        copy_ns = read_ns[-1] - ended_ns
        return Filled(ended_ns=ended_ns, copy_ns=copy_ns, late_ns=copy_ns, stalled=stalled, copied_ns=copied_ns)

    def require_settled(self, places: Sequence[tuple[Readable, int]]) -> None:
        """Look at some blocks once more, after the clock.

        Raises:
            Fault: one has changed.
        """
        for part, start, block in self._blocks[:_SECOND_LOOKS]:
            memory, offset = places[part]
            # Two memoryviews would be compared byte by byte, a hundred times as slowly.
            now = bytearray(len(block))
            with contextlib.suppress(Unreadable):
                memory.read_into(memoryview(now), offset + start)
                if now != block:
                    raise Fault(
                        "rejected", "the output was still being written after custom_kernel had returned", gone=True
                    )

    @property
    def tensors(self) -> list[torch.Tensor]:
        """A uint8 tensor for each, with a storage of its own over the copy."""
        return [bytes_at(self._memory, offset, size) for offset, size in zip(self._offsets, self._sizes, strict=True)]


def take_like(layout: Layout, copy: Copy, places: Sequence[tuple[Readable, int]]) -> Taken:
    """The output of a call whose layout is that of an earlier one; a Fault if it is still changing.

    `copy`: for tensors of its sizes; `places`: memory and offset of each tensor, by the worker's word.
    """
    filled = copy.fill(places)
    copy.require_settled(places)
    return Taken(
        output=Snapshot(layout.tree, copy.tensors),
        output_bytes=sum(map(aligned, layout.sizes)),
        parts=len(layout.sizes),
        **vars(filled),
    )


def take(
    tree: object,
    *,
    inputs: Readable,
    placed: Sequence[Placed],
    output_arena: Arena,
    input_bytes: int,
    memory_bytes: int,
) -> Taken:
    """The output that a worker's `tree`, which has arrived, describes in the arenas of its call.

    Raises:
        Fault: the description is invalid, or the output is still changing or too large.
    """
    described = _described(
        tree, placed=placed, output_bytes=output_arena.size, input_bytes=input_bytes, memory_bytes=memory_bytes
    )
    copy = Copy([region.nbytes for region in described])
    places = [(inputs if region.inputs else output_arena, region.start) for region in described]
    filled = copy.fill(places)
    copy.require_settled(places)
    return Taken(
        output=Snapshot(tree, copy.tensors),
        output_bytes=sum(aligned(region.nbytes) for region in described if not region.inputs),
        parts=len(described),
        **vars(filled),
    )


def take_copied(tree: object, parts: Sequence[torch.Tensor], *, input_bytes: int, memory_bytes: int) -> Taken:
    """The output that a worker's `tree`, which has arrived, describes in copies that the judge has in its own memory.

    `parts`: bytes of each tensor, in the order of the tree, on any device.

    Raises:
        Fault: the description is invalid or no description of these parts, or the output is too large.
    """
    size = sum(aligned(part.numel()) for part in parts)
    described = _described(tree, placed=(), output_bytes=size, input_bytes=input_bytes, memory_bytes=memory_bytes)
    if [region.nbytes for region in described] != [part.numel() for part in parts]:
        raise tampered("an output whose description is not that of its memory")
    return Taken(
        # Each with a storage of its own.
        output=Snapshot(tree, [part.clone() for part in parts]),
        output_bytes=size,
        parts=len(described),
        ended_ns=0,
    )


def _described(
    tree: object, *, placed: Sequence[Placed], output_bytes: int, input_bytes: int, memory_bytes: int
) -> Sequence[Region]:
    try:
        described = regions(tree, placed=placed, output_bytes=output_bytes)
    except WireViolation as error:
        raise tampered(str(error)) from error
    # Many descriptors of the same bytes must not multiply into more memory than the case may hold.
    if held(input_bytes, sum(region.nbytes for region in described)) > memory_bytes:
        raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
    return described


def _cut(nbytes: int, block_bytes: int) -> Sequence[tuple[int, int]]:
    """Start and end of each block of a tensor. The first has a random length, so that no boundary is known."""
    if nbytes <= _AT_ONCE_BYTES:
        return [(0, nbytes)] if nbytes else []
    first = 1 + int.from_bytes(os.urandom(4), "little") % block_bytes
    ends = [*range(first, nbytes, block_bytes), nbytes]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _shuffled(blocks: list[tuple[int, int, memoryview]]) -> Sequence[tuple[int, int, memoryview]]:
    keys = memoryview(os.urandom(8 * len(blocks))).cast("Q")
    return [block for _, block in sorted(zip(keys, blocks, strict=True), key=lambda pair: pair[0])]


def _new_memory(size: int) -> memoryview:
    """Memory for a copy, every page of it written. A large one lies in huge pages, where there are some."""
    if size < HUGE_PAGE_BYTES:
        view = memoryview(bytearray(size))
    else:
        # The kernel aligns mappings of whole huge pages for them, from Linux 6.7 on.
        memory = mmap.mmap(-1, size_for_later(size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        view = memoryview(memory)[:size]
    view[::PAGE_BYTES] = bytes(len(view[::PAGE_BYTES]))
    return view


def needed(answer: Mapping[str, Any], *, input_bytes: int, memory_bytes: int) -> int:
    """The bytes of output arena that a worker asks for.

    Raises:
        Fault: it is not a size, or it is more than the case may hold.
    """
    nbytes = answer.get("bytes")
    if not within(nbytes, 1 << 48):
        raise tampered("an output of an impossible size")
    if held(input_bytes, nbytes) > memory_bytes:
        raise Fault(
            "memory_limit",
            f"custom_kernel returned {nbytes} bytes; with {input_bytes} bytes of inputs that is more than the "
            f"{memory_bytes} bytes this case may hold",
            gone=True,
        )
    return nbytes


def claimed(answer: Mapping[str, Any]) -> int:
    """The time a worker claims.

    Raises:
        Fault: it is not a time.
    """
    claim = answer.get("claim_ns")
    if not within(claim, _CLAIM_LIMIT_NS):
        raise tampered("a claimed time that is no count of nanoseconds")
    return claim


def within(value: object, limit: int) -> TypeGuard[int]:
    """Whether a value that a worker sent is a count of at most `limit`."""
    return type(value) is int and 0 <= value <= limit


def held(input_bytes: int, output_bytes: int) -> int:
    """Bytes held at once: inputs and their shared copy; the output, its shared copy and the judge's copy."""
    return 2 * input_bytes + 3 * output_bytes
