"""Submitted code: fetched once per hash, kept in `code/part-*.parquet`, read again in any order, in constant memory.

The parts hold the codes by their ids in the database, and a new part begins where the bytes say so. New submissions
have higher ids, so old parts stay as they are and only the last one grows.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runner.data import Progress
from runner.data.splice import Encoded
from runner.data.tables import CODE, GROUP_BYTES, Writer
from runner.errors import DataError

#: Bytes of code in a part, uncompressed.
PART_BYTES: Final = 128 * 2**20
#: Codes that are asked for at once.
_FETCH_ROWS: Final = 2000

PLAIN: Final = "utf-8"
WITH_NUL: Final = "utf-8 with NUL"
INVALID: Final = "invalid"
#: What `bytes.isspace` takes for white space.
_WHITE_SPACE: Final = np.frombuffer(b" \t\n\r\x0b\x0c", np.uint8)


def encoding_of(code: bytes) -> str:
    """`utf-8`, `utf-8 with NUL`, or `invalid` for bytes that are not UTF-8."""
    try:
        code.decode("utf-8")
    except UnicodeDecodeError:
        return INVALID
    return WITH_NUL if b"\0" in code else PLAIN


def is_blank(code: bytes) -> bool:
    """Whether it is empty or white space."""
    return not code or code.isspace()


def as_text(code: bytes, encoding: str) -> bytes:
    """The code as valid UTF-8: what is not becomes U+FFFD."""
    return code.decode("utf-8", "replace").encode("utf-8") if encoding == INVALID else code


class Known:
    """The codes of one file of an older export, by row group. Only what was asked for is decoded."""

    def __init__(self, path: Path, hashes: Sequence[str]) -> None:
        """`hashes`: of the code of each row of the file."""
        self.path = path
        # The same text is the same object everywhere: an export has each hash several times.
        self.hashes = [sys.intern(sha256) for sha256 in hashes]
        with pq.ParquetFile(path) as file:
            details = file.metadata
            rows = [details.row_group(number).num_rows for number in range(details.num_row_groups)]
        #: The first row of each row group, and the end.
        self.edges = [0, *accumulate(rows)]
        self._places = {sha256: place for place, sha256 in enumerate(self.hashes)}

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._places

    def groups_with(self, wanted: Iterable[str]) -> dict[int, list[str]]:
        """The row groups that these codes are in."""
        found: dict[int, list[str]] = {}
        for sha256 in wanted:
            found.setdefault(bisect_right(self.edges, self._places[sha256]) - 1, []).append(sha256)
        return dict(sorted(found.items()))

    def read(self, groups: dict[int, list[str]]) -> Iterator[tuple[list[str], pa.Array]]:
        """Hashes and bytes of these codes, a row group at a time."""
        with pq.ParquetFile(self.path) as file:
            for number, hashes in groups.items():
                column = file.read_row_group(number, columns=["code"], use_threads=False).column(0).combine_chunks()
                if isinstance(column, pa.ChunkedArray):
                    column = column.chunk(0)
                rows = [self._places[sha256] - self.edges[number] for sha256 in hashes]
                yield hashes, column.view(pa.large_binary()).take(pa.array(rows, pa.int64()))


def known_part(path: Path) -> tuple[Known, list[str]]:
    """A part of an older export, and how each of its codes is encoded."""
    with pq.ParquetFile(path) as part:
        columns = part.read(columns=["code_sha256", "code_encoding"], use_threads=False)
    return Known(path, columns.column(0).to_pylist()), columns.column(1).to_pylist()


class Codes:
    """The codes of an export: which there are, and the bytes of those that are needed, in a file without a name."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the temporary file is made; it needs the room of all code that is new, uncompressed."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `close`
        self._end = 0
        self._places: dict[str, int] = {}
        self._ids = array("q")
        self._bytes = array("q")
        self._offsets = array("q")
        #: Hash -> encoding, and the blank ones; only where out of the ordinary.
        self._encodings: dict[str, str] = {}
        self._blank: set[str] = set()

    def close(self) -> None:
        """Give the temporary file up."""
        self._file.close()

    def want(self, sha256: str, code_id: int, size: int) -> None:
        """Note a code that the export needs; the lowest id of a hash stands for it."""
        place = self._places.setdefault(sys.intern(sha256), len(self._ids))
        if place == len(self._ids):
            self._ids.append(code_id)
            self._bytes.append(size)
            self._offsets.append(-1)
        else:
            self._ids[place] = min(self._ids[place], code_id)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._places

    def size(self, sha256: str) -> int:
        """Bytes of a code."""
        return self._bytes[self._places[sha256]]

    def encoding(self, sha256: str) -> str:
        """How a code is encoded; only after `note` or `fetch`."""
        return self._encodings.get(sha256, PLAIN)

    def flags(self, sha256: str) -> list[str]:
        """The checks of the code itself that it fails."""
        found = ["code_blank"] if sha256 in self._blank else []
        return [*found, "code_encoding"] if sha256 in self._encodings else found

    @property
    def odd(self) -> bool:
        """Whether any code is not plain text."""
        return bool(self._blank or self._encodings)

    def read(self, sha256: str) -> bytes:
        """The bytes of a code that was fetched or taken; by any thread."""
        place = self._places[sha256]
        return os.pread(self._file.fileno(), self._bytes[place], self._offsets[place])

    def column(self, hashes: Sequence[str]) -> pa.LargeBinaryArray:
        """The bytes of codes that were fetched or taken; by any thread. No code becomes an object of Python."""
        places = np.fromiter((self._places[sha256] for sha256 in hashes), np.int64, len(hashes))
        sizes = np.frombuffer(self._bytes, np.int64)[places]
        starts = np.frombuffer(self._offsets, np.int64)[places]
        edges = np.zeros(len(hashes) + 1, np.int64)
        np.cumsum(sizes, out=edges[1:])
        data = pa.allocate_buffer(int(edges[-1]))
        # What lies together in the file is read at once.
        breaks = np.flatnonzero(starts[1:] != starts[:-1] + sizes[:-1]) + 1
        with memoryview(data) as view:
            for first, last in pairwise([0, *breaks.tolist(), len(hashes)]):
                at, rest = int(starts[first]) if first < last else 0, view[edges[first] : edges[last]]
                while rest:
                    got = os.preadv(self._file.fileno(), [rest], at)
                    if not got:
                        raise OSError(errno.EIO, "the temporary file with the code ends early")
                    at, rest = at + got, rest[got:]
        return pa.Array.from_buffers(pa.large_binary(), len(hashes), [None, pa.py_buffer(edges), data])

    def in_order(self) -> list[str]:
        """The hashes by id."""
        return sorted(self._places, key=lambda sha256: self._ids[self._places[sha256]])

    def note(self, sha256: str, encoding: str, *, blank: bool) -> None:
        """What an older export says of a code."""
        if encoding != PLAIN:
            self._encodings[sha256] = encoding
        if blank:
            self._blank.add(sha256)

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Those whose bytes are not there yet, once each."""
        return [sha256 for sha256 in dict.fromkeys(hashes) if self._offsets[self._places[sha256]] < 0]

    def take(self, hashes: Sequence[str], codes: pa.Array) -> None:
        """Keep codes of an older export, which was compared with its manifest."""
        self._keep(hashes, codes)

    def fetch(
        self, hashes: Sequence[str], read: Callable[[Sequence[int]], Iterable[pa.RecordBatch]], progress: Progress
    ) -> None:
        """Fetch codes. `read`: ids and codes of these ids, by id.

        Raises:
            DataError: a code is not there, or is not what its hash says.
        """
        done = 0
        for some in _in_bites(hashes):
            ids = [self._ids[self._places[sha256]] for sha256 in some]
            wanted = dict(zip(ids, some, strict=True))
            for batch in read(ids):
                found = batch.column(0).to_pylist()
                self._fetched(found, [wanted.pop(code_id) for code_id in found], batch.column(1))
            if wanted:
                raise DataError(f"code {min(wanted)} is missing; nothing was exported")
            done += len(some)
            progress("code fetched", done, len(hashes))

    def _fetched(self, ids: Sequence[int], hashes: Sequence[str], codes: pa.Array) -> None:
        """Check codes against their hashes, look at how they are encoded, and keep them."""
        edges, data = _edges_and_data(codes)
        for code_id, sha256, (first, last) in zip(ids, hashes, pairwise(edges.tolist()), strict=True):
            if hashlib.sha256(data[first:last]).hexdigest() != sha256:
                raise DataError(f"code {code_id} does not have the hash that the database gives; nothing was exported")
        plain = _is_plain(codes, data[edges[0] : edges[-1]])
        for number in range(len(codes)) if not plain else _begin_blank(edges, data):
            code = bytes(data[edges[number] : edges[number + 1]])
            self.note(hashes[number], encoding_of(code), blank=is_blank(code))
        self._keep(hashes, codes)

    def _keep(self, hashes: Sequence[str], codes: pa.Array) -> None:
        edges, data = _edges_and_data(codes)
        rest = data[edges[0] : edges[-1]]
        while rest:
            rest = rest[self._file.write(rest) :]
        moved = self._end - int(edges[0])
        for sha256, (first, last) in zip(hashes, pairwise(edges.tolist()), strict=True):
            place = self._places[sha256]
            self._bytes[place] = last - first
            self._offsets[place] = first + moved
        self._end += int(edges[-1] - edges[0])

    def parts(self) -> Iterator[list[str]]:
        """The hashes of each part."""
        part: list[str] = []
        size = 0
        for sha256 in self.in_order():
            if part and size + self.size(sha256) > PART_BYTES:
                yield part
                part, size = [], 0
            part.append(sha256)
            size += self.size(sha256)
        # An export without code has one part without rows, so that every export has the same files.
        if part or not self._ids:
            yield part


def _edges_and_data(codes: pa.Array) -> tuple[np.ndarray[Any, Any], memoryview]:
    """Where each value of an array of bytes begins, and the end; and the bytes."""
    _, offsets, data = codes.buffers()
    kind = np.int64 if pa.types.is_large_binary(codes.type) else np.int32
    edges = (
        np.frombuffer(offsets, kind)[codes.offset : codes.offset + len(codes) + 1] if len(codes) else np.zeros(1, kind)
    )
    return edges, memoryview(b"") if data is None else memoryview(data)


def _is_plain(codes: pa.Array, data: memoryview) -> bool:
    """Whether all of them are UTF-8 without a NUL; `data`: their bytes."""
    try:
        codes.cast(pa.large_string() if pa.types.is_large_binary(codes.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return not len(data) or bool(np.frombuffer(data, np.uint8).min())


def _begin_blank(edges: np.ndarray[Any, Any], data: memoryview) -> list[int]:
    """The numbers of the codes that are empty or begin with white space."""
    starts = edges[:-1]
    empty = starts == edges[1:]
    firsts = np.frombuffer(data, np.uint8)[np.where(empty, 0, starts)] if len(data) else np.zeros(len(starts), np.uint8)
    return [int(number) for number in np.flatnonzero(empty | np.isin(firsts, _WHITE_SPACE))]


def _in_bites(hashes: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(hashes), _FETCH_ROWS):
        yield list(hashes[first : first + _FETCH_ROWS])


def part_name(number: int) -> str:
    """The path of a part in an export."""
    return f"code/part-{number:05}.parquet"


class Part:
    """A part in the making: which of its row groups an older part has already, and which are to be written."""

    def __init__(self, path: Path, codes: Codes, hashes: Sequence[str], old: Known | None) -> None:
        """`old`: a part that was written by the same release of pyarrow."""
        self.path = path
        self._codes = codes
        self._old = old
        #: The hashes of each row group, and the number of the old one that is equal.
        self._groups: list[tuple[list[str], int | None]] = []
        first = 0
        for number, some in enumerate(in_groups(hashes, codes.size)):
            same = (
                old is not None
                and first == old.edges[min(number, len(old.edges) - 1)]
                and (
                    number + 1 < len(old.edges)
                    and first + len(some) == old.edges[number + 1]
                    and list(old.hashes[first : first + len(some)]) == some
                )
            )
            self._groups.append((some, number if same else None))
            first += len(some)
        #: Whether the old part is this one.
        self.same = old is not None and first == len(old.hashes) and all(kept is not None for _, kept in self._groups)

    @property
    def needed(self) -> list[str]:
        """The codes that are to be written."""
        return [sha256 for some, kept in self._groups if kept is None for sha256 in some]

    def write(self) -> Writer:
        """Write it; the writer says what was written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        old = Encoded(self._old.path) if self._old is not None else None
        try:
            with Writer(self.path, CODE) as writer:
                for some, kept in self._groups:
                    if kept is not None and old is not None:
                        writer.copy(old.group(kept))
                    else:
                        writer.build(partial(self._table, some))
        finally:
            if old is not None:
                old.close()
        return writer

    def _table(self, hashes: Sequence[str]) -> pa.Table:
        codes = self._codes
        columns = [
            pa.array(hashes, pa.large_string()),
            pa.array([codes.size(sha256) for sha256 in hashes], pa.int64()),
            pa.array([codes.encoding(sha256) for sha256 in hashes], pa.large_string()),
            codes.column(hashes),
        ]
        return pa.Table.from_arrays(columns, schema=CODE)


def link(old: Path, new: Path) -> None:
    """Have the new export share a file with the old one, or copy it where that cannot be."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)


def in_groups(hashes: Sequence[str], size: Callable[[str], int]) -> Iterator[list[str]]:
    """Hashes in pieces whose codes have at most `GROUP_BYTES`."""
    group: list[str] = []
    total = 0
    for sha256 in hashes:
        if group and total + size(sha256) > GROUP_BYTES:
            yield group
            group, total = [], 0
        group.append(sha256)
        total += size(sha256)
    if group:
        yield group
