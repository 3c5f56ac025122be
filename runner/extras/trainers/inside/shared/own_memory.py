"""A limit of this process's own memory: what asks for more fails, before the kernel has to kill for it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


def limit_memory(nbytes: int) -> tuple[int, int]:
    """Let this process have only so many bytes more than now; returns the limits before. Shared memory is left out."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit, hard = _data_bytes() + nbytes, before[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    return before


@contextlib.contextmanager
def limited_memory(nbytes: int | None) -> Iterator[None]:
    """The same for a while; None: no limit."""
    if nbytes is None:
        yield
        return
    before = limit_memory(nbytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def limit_note(text: str, nbytes: int | None) -> str:
    """What may be had, to follow the text of an error that says that there was no memory; torch has no class for it."""
    lacks = any(words in text for words in ("allocate memory", "Unable to allocate", "MemoryError"))
    return f"; a group's tensors may hold {nbytes} bytes" if lacks and nbytes is not None else ""


def _data_bytes() -> int:
    """What counts against that limit: proc(5), statm, field 6, in pages; it holds the stack, too."""
    # Before each call of a reference: a Path takes four times as long.
    with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 see above
        return int(file.read().split()[5]) * resource.getpagesize()
