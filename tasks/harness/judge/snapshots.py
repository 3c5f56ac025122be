"""The judge's copy of what a worker returned: places checked, bytes copied, and proof that they had stopped changing.

Runs on the judge's side only, in the process that holds the arenas of the call.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import torch

from tasks.harness.shared.arenas import ALIGN_BYTES, HUGE_PAGE_BYTES, aligned, bytes_at, size_for_later
from tasks.harness.shared.values import Placed, Snapshot, regions
from tasks.harness.shared.wire import WireViolation

from .faults import Fault, tampered

#: Positions that are read before the full copy and compared with it, beside one position of every tensor.
_PROBES = 16
#: Up to so many bytes are copied as fast as one position is read. Above, at most one position in so many is read first.
_AT_ONCE_BYTES = 4096
_BYTES_A_PROBE = 2048
_CLAIM_LIMIT_NS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A copy of an output, and when it was made."""

    output: Snapshot
    #: Bytes that the output fills of the arena it was copied to (0 when the worker returned an input buffer).
    output_bytes: int
    #: Tensors in the output.
    parts: int
    #: When the copies began, on time.perf_counter_ns. Until then the bytes could still change.
    looked_ns: int


class Readable(Protocol):
    """Memory that a region is read from."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """A range of it; ValueError where there is none."""


class Frozen:
    """A copy that was made at the moment a call was over, before its contents were described.

    Tensors over it share its memory.
    """

    def __init__(self, copy: memoryview, *, ended_ns: int, copied_ns: int) -> None:
        self._copy = copy
        self.size = len(copy)
        #: When the first look at every tensor ended, and when the copy did; on time.perf_counter_ns.
        self.ended_ns = ended_ns
        self.copied_ns = copied_ns

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """See Arena. A copy where the offset is not aligned for numbers."""
        view = bytes_at(self._copy, offset, nbytes)
        return view if offset % ALIGN_BYTES == 0 else view.clone()


class DeviceCopy:
    """A copy of an output in device memory of the judge's own."""

    def __init__(self, copy: torch.Tensor) -> None:
        self._copy = copy
        self.size = copy.numel()

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """See Arena. With a storage of its own."""
        return self._copy[offset : offset + nbytes].clone()


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

    def freeze(self, parts: Sequence[tuple[int, int]], *, input_bytes: int, memory_bytes: int) -> Frozen:
        """Copy the tensors of an output, each at its place in a layout like that of `values.Outgoing`.

        Args:
            parts: address and bytes of each, by the worker's word.
            input_bytes: of the call's inputs.
            memory_bytes: what the case may hold.

        Raises:
            Fault: it is too large, or it was still changing.
            Unreadable: see the class.
        """
        size = sum(map(aligned, (nbytes for _, nbytes in parts)))
        if held(input_bytes, size) > memory_bytes:
            raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
        places, offset = [], 0
        for address, nbytes in parts:
            places.append((address, offset, nbytes))
            offset += aligned(nbytes)
        small = sum(nbytes for _, _, nbytes in places) <= _AT_ONCE_BYTES
        probes = self._first_look(places, whole=small)
        ended = time.perf_counter_ns()
        if not small:
            probes += self._probes(places)
        copy = _new_memory(size)
        for address, offset, nbytes in places:
            self._read(copy[offset : offset + nbytes], address)
        copied = time.perf_counter_ns()
        for offset, early in probes:
            if copy[offset : offset + len(early)] != early:
                raise _still_written()
        return Frozen(copy, ended_ns=ended, copied_ns=copied)

    def _first_look(self, places: Sequence[tuple[int, int, int]], *, whole: bool) -> list[tuple[int, bytearray]]:
        """One read of every tensor: all of it, or the bytes at a secret position."""
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
        """Bytes at secret positions, read before all others. Bytes that are written later differ from the copy."""
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
        Fault: the description is invalid, or the output is still changing or too large.
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
    # A frozen copy does not change any more.
    probes = [
        None if isinstance(source, (Frozen, DeviceCopy)) else _positions(view.numel())
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
        output_bytes=max((aligned(region.start + region.nbytes) for region in found if not region.inputs), default=0),
        parts=len(found),
        looked_ns=looked,
    )


def _new_memory(size: int) -> memoryview:
    """Memory for a copy. A large one lies in huge pages, where there are some: thousands of small ones take longer."""
    if size < HUGE_PAGE_BYTES:
        return memoryview(bytearray(size))
    # The kernel aligns mappings of whole huge pages for them, from Linux 6.7 on.
    memory = mmap.mmap(-1, size_for_later(size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)[:size]


def _still_written() -> Fault:
    return Fault("rejected", "the output was still being written after custom_kernel had returned", gone=True)


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


def _positions(nbytes: int) -> torch.Tensor:
    """Secret positions among `nbytes` bytes."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.int64)
    random = torch.frombuffer(bytearray(os.urandom(8 * _PROBES)), dtype=torch.int64)
    return random.remainder(nbytes)
