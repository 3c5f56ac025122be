"""How a process that exports uses memory: what it keeps, and when it gives some back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

#: Of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


@contextmanager
def lean() -> Iterator[None]:
    """Have the process keep memory for what comes next: the kernel clears whatever it gives anew."""
    pool = pa.default_memory_pool()
    with suppress(AttributeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 2)
        library.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
        library.mallopt(_M_TRIM_THRESHOLD, 64 * 2**20)
    pa.set_memory_pool(pa.system_memory_pool())
    # Lists of many rows have the collector of cycles walk all of them again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
        if collects:
            gc.enable()


def trim() -> None:
    """Give memory back that is free: pieces of all sizes leave gaps, which would be most of what an export holds."""
    with suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
