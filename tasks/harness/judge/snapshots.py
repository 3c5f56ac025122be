"""The judge's copy of what a worker returned: places checked, bytes copied, and proof that they had stopped changing.

Called on the judge's side only, in whichever process holds the arenas of the call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol, TypeGuard

import torch

from tasks.harness.shared.arenas import ALIGN_BYTES, Arena, bytes_at
from tasks.harness.shared.values import Placed, Snapshot, regions
from tasks.harness.shared.wire import WireViolation

from .faults import Fault, tampered

#: Positions that are read, beside one of every tensor, before the full copy is made, and compared with it.
_PROBES = 16
#: Fewer bytes are copied as fast as a position is read; of more, at most one position in so many bytes is read first.
_AT_ONCE_BYTES = 4096
_BYTES_A_PROBE = 2048
_CLAIM_LIMIT_NS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A copy of an output, and what it cost to get."""

    output: Snapshot
    #: What the output fills of the room it was copied to (0 when the worker returned an input buffer).
    output_bytes: int
    #: Tensors in it.
    parts: int
    #: When the copies began, on time.perf_counter_ns: until then they could still be written.
    looked_ns: int


class Readable(Protocol):
    """Bytes that a region is read from."""

    @property
    def size(self) -> int:
        """How many there are."""

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """Some of them; ValueError where there are none."""


class Frozen:
    """A copy made the moment a call was over, before anybody has said what is in it.

    Its tensors are no copies of their own.
    """

    def __init__(self, copy: bytearray, *, ended_ns: int, copied_ns: int) -> None:
        self._copy = copy
        self.size = len(copy)
        #: When the first look at every tensor was over, and when the copy was; on time.perf_counter_ns.
        self.ended_ns = ended_ns
        self.copied_ns = copied_ns

    @classmethod
    def of_arena(cls, arena: Arena) -> Frozen:
        """Copy an arena.

        Raises:
            Fault: it was still being written.
        """
        words = arena.words()
        # Whole pages are whole words.
        probe = [number % len(words) for number in memoryview(os.urandom(4 * _PROBES)).cast("I")]
        look = itemgetter(*probe)
        early = look(words)
        ended = time.perf_counter_ns()
        copy = arena.copied()
        copied = time.perf_counter_ns()
        if look(memoryview(copy).cast("Q")) != early:
            raise _still_written()
        return cls(copy, ended_ns=ended, copied_ns=copied)

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """See Arena; where no number could begin, a copy where one can."""
        view = bytes_at(self._copy, offset, nbytes)
        return view if offset % ALIGN_BYTES == 0 else view.clone()


class Unreadable(Exception):
    """The worker has no memory at an address that it named, or is gone."""


class WorkerMemory:
    """The worker's memory, read through a descriptor that it opened before a submission was loaded.

    Nothing that the worker maps, protects or puts off changes what is read, and reading takes no action of its own. It
    can make the reading wait: while a thread of its own changes mappings, nobody else may read them.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def freeze(self, parts: Sequence[tuple[int, int]], *, input_bytes: int, memory_bytes: int) -> Frozen:
        """Copy the tensors of an output, each at its place in a layout like that of `values.Outgoing`.

        Args:
            parts: address and bytes of each, as the worker says.
            input_bytes: of the call's inputs.
            memory_bytes: what the case may hold.

        Raises:
            Fault: there is too much of it, or it was still being written.
            Unreadable: see there.
        """
        size = sum(map(_aligned, (nbytes for _, nbytes in parts)))
        if held(input_bytes, size) > memory_bytes:
            raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
        places, offset = [], 0
        for address, nbytes in parts:
            places.append((address, offset, nbytes))
            offset += _aligned(nbytes)
        small = sum(nbytes for _, _, nbytes in places) <= _AT_ONCE_BYTES
        probes = self._first_look(places, whole=small)
        ended = time.perf_counter_ns()
        if not small:
            probes += self._probes(places)
        copy = bytearray(size)
        view = memoryview(copy)
        for address, offset, nbytes in places:
            self._read(view[offset : offset + nbytes], address)
        copied = time.perf_counter_ns()
        for offset, early in probes:
            if copy[offset : offset + len(early)] != early:
                raise _still_written()
        return Frozen(copy, ended_ns=ended, copied_ns=copied)

    def _first_look(self, places: Sequence[tuple[int, int, int]], *, whole: bool) -> list[tuple[int, bytearray]]:
        """One read of every tensor: all of it, or what stands at a secret position."""
        found = []
        numbers = memoryview(os.urandom(8 * len(places))).cast("Q")
        for (address, offset, nbytes), number in zip(places, numbers, strict=True):
            if nbytes:
                position = 0 if whole else number % nbytes
                early = bytearray(nbytes if whole else min(8, nbytes - position))
                self._read(memoryview(early), address + position)
                found.append((offset + position, early))
        return found

    def _probes(self, places: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, bytearray]]:
        """Bytes at secret positions, read before all others: the later they were written, the likelier they differ."""
        total = sum(nbytes for _, _, nbytes in places)
        count = min(_PROBES, total // _BYTES_A_PROBE)
        for number in memoryview(os.urandom(8 * count)).cast("Q"):
            position = number % total
            for address, offset, nbytes in places:
                if position < nbytes:
                    early = bytearray(min(8, nbytes - position))
                    self._read(memoryview(early), address + position)
                    yield offset + position, early
                    break
                position -= nbytes

    def _read(self, into: memoryview, address: int) -> None:
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self._fd, [into[done:]], address + done)
            except (OSError, OverflowError) as error:
                raise Unreadable from error
            if not count:
                raise Unreadable
            done += count


def take(
    tree: object,
    *,
    inputs: Readable,
    placed: Sequence[Placed],
    output_arena: Readable,
    input_bytes: int,
    memory_bytes: int,
) -> Taken:
    """Copy what a worker's `tree` describes out of the arenas of its call.

    Raises:
        Fault: the description is none, the output is still being written, or there is too much of it.
    """
    try:
        found = regions(tree, placed=placed, output_bytes=output_arena.size)
    except WireViolation as error:
        raise tampered(str(error)) from error
    # Many descriptors of the same bytes must not multiply into more memory than the case may hold.
    if held(input_bytes, sum(region.nbytes for region in found)) > memory_bytes:
        raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
    sources = [inputs if region.inputs else output_arena for region in found]
    views = [source.bytes_at(region.start, region.nbytes) for source, region in zip(sources, found, strict=True)]
    # What has been copied already stays as it is.
    probes = [
        None if isinstance(source, Frozen) else _positions(view.numel())
        for source, view in zip(sources, views, strict=True)
    ]
    seen = [None if probe is None else view[probe] for view, probe in zip(views, probes, strict=True)]
    looked = time.perf_counter_ns()
    copies = [view if probe is None else view.clone() for view, probe in zip(views, probes, strict=True)]
    for copy, probe, early in zip(copies, probes, seen, strict=True):
        if early is not None and not torch.equal(copy[probe], early):
            raise _still_written()
    return Taken(
        output=Snapshot(tree, copies),
        output_bytes=max((_aligned(region.start + region.nbytes) for region in found if not region.inputs), default=0),
        parts=len(found),
        looked_ns=looked,
    )


def _aligned(nbytes: int) -> int:
    """What a tensor fills with the gap to the next one, so that an output of several has room the next time."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def _still_written() -> Fault:
    return Fault("rejected", "the output was still being written after custom_kernel had returned", gone=True)


def needed(answer: Mapping[str, Any], *, input_bytes: int, memory_bytes: int) -> int:
    """The room a worker asks for.

    Raises:
        Fault: it is no size, or more than the case may hold.
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
        Fault: it is none.
    """
    claim = answer.get("claim_ns")
    if not within(claim, _CLAIM_LIMIT_NS):
        raise tampered("a claimed time that is no count of nanoseconds")
    return claim


def within(value: object, limit: int) -> TypeGuard[int]:
    """Whether a value that a worker sent is a count of at most `limit`."""
    return type(value) is int and 0 <= value <= limit


def held(input_bytes: int, output_bytes: int) -> int:
    """Bytes held at once: inputs and their shared copy; the worker's output, its shared copy and the judge's own."""
    return 2 * input_bytes + 3 * output_bytes


def _positions(nbytes: int) -> torch.Tensor:
    """Secret positions among `nbytes` bytes."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.int64)
    random = torch.frombuffer(bytearray(os.urandom(8 * _PROBES)), dtype=torch.int64)
    return random.remainder(nbytes)
