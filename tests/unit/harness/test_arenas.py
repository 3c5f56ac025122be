"""Shared memory that is handed over in one go."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

import pytest

from tasks.harness.shared.arenas import (
    HUGE_FROM_BYTES,
    HUGE_PAGE_BYTES,
    PAGE_BYTES,
    Arena,
    has_huge_pages,
    size_for_later,
)
from tasks.harness.shared.call_flags import CallFlags
from tests.support.mappings import mapped_kb


@pytest.mark.parametrize("nbytes", [1, PAGE_BYTES + 1, HUGE_FROM_BYTES, 3 << 20])
def test_an_arena_is_mapped_where_addresses_were_reserved(nbytes: int) -> None:
    """Tensors laid out before the bytes were there see them once the descriptor has come, and not before."""
    reserved = Arena.reserve(size_for_later(nbytes))
    early = reserved.bytes_at(nbytes - 1, 1)
    assert early.item() == 0
    with Arena.create_for_later(nbytes) as arena:
        arena.fill(nbytes - 1, memoryview(b"\x07"))
        arena.collapse()
        assert early.item() == 0
        reserved.enter(arena.fd)

        assert arena.size == reserved.size
        assert early.item() == 7
        early[0] = 9
        assert arena.bytes_at(nbytes - 1, 1).item() == 9


def test_a_large_arena_lies_in_huge_pages_at_whole_huge_addresses() -> None:
    """Elsewhere the kernel maps them page by page; filling small pages and moving them takes four times as long."""
    arenas = [Arena.reserve(HUGE_PAGE_BYTES) for _ in range(8)]
    assert {arena.addresses.start % HUGE_PAGE_BYTES for arena in arenas} == {0}
    nbytes = 2 * HUGE_PAGE_BYTES
    with Arena.create_for_later(nbytes) as arena:
        fresh = mapped_kb(arena.addresses.start, "ShmemPmdMapped")
        assert not arena.bytes_at(0, nbytes).any()
        assert arena.collapse() == has_huge_pages()
        assert fresh == (nbytes >> 10 if has_huge_pages() else 0)


def test_what_is_no_memory_file_is_not_mapped() -> None:
    """The error says why; the reserved addresses stay as they were."""
    reserved = Arena.reserve(PAGE_BYTES)
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match="inputs cannot be mapped") as caught:
            reserved.enter(read)
        assert caught.value.errno in (errno.ENODEV, errno.EACCES)
        assert reserved.bytes_at(0, 1).item() == 0
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    "create",
    [lambda: Arena.create(10_000), lambda: Arena.create_for_later(1 << 20), CallFlags.create],
    ids=["an arena", "an arena for later", "the flags"],
)
def test_shared_memory_can_be_neither_truncated_nor_unsealed(create: Callable[[], Arena | CallFlags]) -> None:
    """A worker that made it smaller would kill the judge."""
    made = create()
    for size in (0, 1 << 22):
        with pytest.raises(PermissionError):
            os.ftruncate(made.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(made.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    made.close()
