"""Shared memory between judge and worker: anonymous files that the judge makes, seals and hands over.

The judge creates every arena and seals its size, so that no one can truncate it under the judge's feet (SIGBUS); it
never maps memory of the worker's making. An arena is used for one call and then forgotten: a worker that keeps a
mapping sees nothing of later calls. Both sides use this module.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Self

import torch

#: Distance between storages in an arena; what CUDA's allocator gives, and a multiple of every cache line.
ALIGN_BYTES = 512
PAGE_BYTES = mmap.PAGESIZE
#: Arenas are whole pages, and so whole tiles.
_POISON_TILE_BYTES = PAGE_BYTES
#: Asking for a page of them would take longer than filling a small arena.
_SMALL_TILE_BYTES = 512
#: Up to here Python copies faster than torch begins to.
_SMALL_BYTES = 1 << 20


class Arena:
    """A shared memory region of fixed size. Close it, or use it as a context manager."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        # Populated at once: page faults belong to the hand-over, not to the kernel that is timed.
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)

    @classmethod
    def create(cls, size: int) -> Self:
        """A new arena of at least `size` bytes, rounded up to pages, sealed against any change of its size."""
        size = whole_pages(size)
        fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """A uint8 tensor with a storage of its own over `nbytes` bytes of the arena; empty ones lie elsewhere.

        Raises:
            ValueError: the range is not inside the arena.
        """
        return bytes_at(self._map, offset, nbytes)

    def words(self) -> memoryview:
        """The arena as unsigned numbers of 8 bytes, to look at without torch."""
        return memoryview(self._map).cast("Q")

    def fill(self, offset: int, data: memoryview) -> None:
        """Copy bytes to a place in one go.

        Raises:
            ValueError: they do not fit there.
        """
        self.window(offset, len(data))[:] = data

    def window(self, offset: int, nbytes: int) -> memoryview:
        """A place in the arena, to be written later in one go."""
        return memoryview(self._map)[offset : offset + nbytes]

    @property
    def addresses(self) -> range:
        """Where it is mapped."""
        start = self.bytes_at(0, 1).data_ptr()
        return range(start, start + self.size)

    def copied(self) -> bytearray:
        """All its bytes, copied by this thread alone."""
        return bytearray(self._map)

    def poison(self, nbytes: int | None = None) -> None:
        """Fill the arena with bytes that nobody can foresee; `nbytes`: its first ones alone, as whole pages."""
        size = self.size if nbytes is None else nbytes
        if size <= _SMALL_BYTES:
            tile = os.urandom(_SMALL_TILE_BYTES)
            self.fill(0, memoryview(tile * (size // _SMALL_TILE_BYTES)))
            return
        tile = os.urandom(_POISON_TILE_BYTES)
        tiles = size // _POISON_TILE_BYTES
        whole = self.bytes_at(0, size)
        whole.view(tiles, _POISON_TILE_BYTES).copy_(
            torch.frombuffer(bytearray(tile), dtype=torch.uint8).expand(tiles, -1)
        )

    def forget(self) -> None:
        """Leave the descriptor to someone else to close."""
        self.fd = -1

    def close(self) -> None:
        """Close the descriptor. The mapping goes when the last tensor over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def whole_pages(nbytes: int) -> int:
    """The size of an arena for so many bytes: whole pages, and one at least."""
    return max(PAGE_BYTES, -(-nbytes // PAGE_BYTES) * PAGE_BYTES)


def bytes_at(buffer: mmap.mmap | bytearray, offset: int, nbytes: int) -> torch.Tensor:
    """A uint8 tensor with a storage of its own over `nbytes` bytes of a buffer; empty ones lie elsewhere.

    Raises:
        ValueError: the range is not inside the buffer.
    """
    if offset < 0 or nbytes < 0 or offset + nbytes > len(buffer):
        raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside a buffer of {len(buffer)}")
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(buffer, dtype=torch.uint8, count=nbytes, offset=offset)
