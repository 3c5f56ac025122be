"""Shared memory between judge and worker: anonymous files that the judge makes, seals and hands over.

The judge creates every arena and seals its size. Otherwise a worker could truncate it while the judge reads (SIGBUS).
The judge never maps memory that a worker made. An arena is used for one call and then dropped: a worker that keeps a
mapping sees nothing of later calls.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Self

import torch

#: Alignment of storages in an arena: that of CUDA's allocator, and a multiple of every cache line.
ALIGN_BYTES = 512
PAGE_BYTES = mmap.PAGESIZE
#: Arenas of at least so many bytes use huge pages: mapping 64 MiB then takes 32 entries instead of 16,384.
HUGE_FROM_BYTES = 128 << 10
#: A huge page of x86-64, and of aarch64 with pages of 4 KiB.
HUGE_PAGE_BYTES = 2 << 20
#: A random number of pages comes first, so that equal inputs do not lie at equal addresses.
_MAX_LEADING_PAGES = 16
_MADV_COLLAPSE = 25  # include/uapi/asm-generic/mman-common.h; Linux 6.1 and later
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000


def aligned(nbytes: int) -> int:
    """Bytes of a storage with the gap to the next one."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


class Arena:
    """A shared memory region of fixed size. Close it, or use it as a context manager."""

    def __init__(self, fd: int, size: int, *, reserved: mmap.mmap | None = None, start: int = 0) -> None:
        """Map a memory file. `reserved`, `start`: addresses for a file that comes later, and where it begins there."""
        self.fd = fd
        self.size = size
        # Populated at once, so that page faults belong to the hand-over and not to the timed kernel.
        self._map = reserved or mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._start = start
        first = _address(self._map) + start
        #: The addresses at which it is mapped.
        self.addresses = range(first, first + size)
        self._in_huge_pages = False

    @classmethod
    def create(cls, size: int) -> Self:
        """A new arena of at least `size` bytes, rounded up to pages, sealed against any change of its size."""
        size = whole_pages(size)
        fd = _memory_file(size)
        try:
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def reserve(cls, size: int) -> Self:
        """Random addresses, aligned for huge pages, for an arena that comes later (`enter`).

        Tensors may be laid out over them at once. They read as zeros until `enter`.
        """
        unit = HUGE_PAGE_BYTES if size % HUGE_PAGE_BYTES == 0 else PAGE_BYTES
        spare = (1 + os.urandom(1)[0] % _MAX_LEADING_PAGES) * unit
        reserved = mmap.mmap(-1, size + spare, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        return cls(-1, size, reserved=reserved, start=spare - unit + -_address(reserved) % unit)

    @classmethod
    def create_for_later(cls, size: int) -> Self:
        """A new arena that another process can map in microseconds, once it is filled and `collapse`d.

        Where the kernel can, it lies in huge pages before it is filled. Filling 32 MiB of small pages and moving them
        takes four times as long.
        """
        size = size_for_later(size)
        arena = cls.reserve(size)
        arena.fd = _memory_file(size)
        try:
            arena.enter(arena.fd, populate=False)
            if size >= HUGE_PAGE_BYTES:
                # The kernel moves no page that holds nothing.
                arena.window(0, size)[::HUGE_PAGE_BYTES] = bytes(size // HUGE_PAGE_BYTES)
                arena.collapse()
        except BaseException:
            arena.close()
            raise
        return arena

    def enter(self, fd: int, *, populate: bool = True) -> None:
        """Map a memory file over reserved addresses; the descriptor stays the caller's."""
        flags = mmap.MAP_SHARED | _MAP_FIXED | (mmap.MAP_POPULATE if populate else 0)
        address = self.addresses.start
        if _libc.mmap(address, self.size, _READ_WRITE, flags, fd, 0) != address:
            number = ctypes.get_errno()
            raise OSError(number, f"inputs cannot be mapped: {os.strerror(number)}")

    def collapse(self) -> bool:
        """Move the arena to huge pages if it does not lie in them. Something must be in each. Whether it does now."""
        if not self._in_huge_pages and self.size >= HUGE_PAGE_BYTES:
            self._in_huge_pages = _libc.madvise(self.addresses.start, self.size, _MADV_COLLAPSE) == 0
        return self._in_huge_pages

    def bytes_at(self, offset: int, nbytes: int) -> torch.Tensor:
        """A uint8 tensor with a storage of its own over `nbytes` bytes of the arena; empty ones lie elsewhere.

        Raises:
            ValueError: the range is not inside the arena.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside an arena of {self.size}")
        return bytes_at(self._map, self._start + offset, nbytes)

    def words(self) -> memoryview:
        """The arena as unsigned numbers of 8 bytes, without torch."""
        return self._view().cast("Q")

    def fill(self, offset: int, data: memoryview) -> None:
        """Copy bytes to an offset in one step.

        Raises:
            ValueError: they do not fit there.
        """
        self.window(offset, len(data))[:] = data

    def window(self, offset: int, nbytes: int) -> memoryview:
        """A range of the arena, to be written later in one step."""
        return self._view()[offset : offset + nbytes]

    def read_into(self, into: memoryview, offset: int) -> None:
        """Copy the bytes at an offset to memory of the caller's."""
        into[:] = self.window(offset, len(into))

    def poison(self) -> None:
        """Fill the arena with unpredictable bytes."""
        # Arenas are whole pages.
        tile = torch.frombuffer(bytearray(os.urandom(PAGE_BYTES)), dtype=torch.uint8)
        self.bytes_at(0, self.size).view(-1, PAGE_BYTES).copy_(tile.expand(self.size // PAGE_BYTES, -1))

    def _view(self) -> memoryview:
        return memoryview(self._map)[self._start : self._start + self.size]

    def forget(self) -> None:
        """Give up the descriptor: the caller closes it."""
        self.fd = -1

    def close(self) -> None:
        """Close the descriptor. The mapping ends with the last tensor over it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _memory_file(size: int) -> int:
    """An anonymous file of whole pages, sealed against any change of its size."""
    fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def whole_pages(nbytes: int) -> int:
    """The size of an arena for so many bytes: whole pages, at least one."""
    return max(PAGE_BYTES, -(-nbytes // PAGE_BYTES) * PAGE_BYTES)


def size_for_later(nbytes: int) -> int:
    """The size of an arena for `create_for_later`: whole huge pages if it is large enough, else whole pages."""
    unit = HUGE_PAGE_BYTES if nbytes >= HUGE_FROM_BYTES else PAGE_BYTES
    return max(PAGE_BYTES, -(-nbytes // unit) * unit)


def has_huge_pages() -> bool:
    """Whether arenas can be moved to huge pages on this machine."""
    with Arena.create_for_later(HUGE_PAGE_BYTES) as arena:
        arena.poison()
        return arena.collapse()


def bytes_at(buffer: mmap.mmap | memoryview, offset: int, nbytes: int) -> torch.Tensor:
    """A uint8 tensor with a storage of its own over `nbytes` bytes of a buffer; empty ones lie elsewhere.

    Raises:
        ValueError: the range is not inside the buffer.
    """
    if offset < 0 or nbytes < 0 or offset + nbytes > len(buffer):
        raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside a buffer of {len(buffer)}")
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(buffer, dtype=torch.uint8, count=nbytes, offset=offset)
