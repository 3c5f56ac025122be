"""Submitted code: fetched once per hash, kept in `code/part-*.parquet`, read again in any order, in constant memory.

The parts hold the codes by their ids in the database, and a new part begins where the bytes say so. New submissions
have higher ids, so old parts stay as they are and only the last one grows. The same order gives a code its number.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.data import Progress
from runner.data.splice import Encoded
from runner.data.tables import CODE, GROUP_BYTES, Writer, columns_of
from runner.errors import DataError

#: Bytes of code in a part, uncompressed.
PART_BYTES: Final = 128 * 2**20
#: Codes that are asked for at once.
_FETCH_ROWS: Final = 2000

PLAIN: Final = "utf-8"
WITH_NUL: Final = "utf-8 with NUL"
INVALID: Final = "invalid"
#: A code's encoding is kept as a place in this list.
_ENCODINGS: Final = (PLAIN, WITH_NUL, INVALID)
#: What `bytes.isspace` takes for white space.
_WHITE_SPACE: Final = np.frombuffer(b" \t\n\r\x0b\x0c", np.uint8)

#: Integers, one per code or row.
Integers = np.ndarray[Any, np.dtype[np.int64]]


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


class Codes:
    """The codes of an export: which there are, and the bytes of those that are needed, in a file without a name.

    Codes with the same hash are one, and have one number: 0, 1, 2 in the order of their lowest ids in the database.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: where the temporary file is made; it needs the room of all code that is new, uncompressed."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by `close`
        self._end = 0
        #: Where each thread puts what it reads.
        self._rooms = threading.local()
        #: Of each code, by its number.
        self.hashes: pa.Array = pa.array([], pa.large_string())
        self.sizes: Integers = np.zeros(0, np.int64)
        self._ids: Integers = np.zeros(0, np.int64)
        self._offsets: Integers = np.zeros(0, np.int64)
        self._encodings = np.zeros(0, np.uint8)
        self._blank = np.zeros(0, bool)

    def close(self) -> None:
        """Give the temporary file up."""
        self._file.close()

    def want(self, hashes: pa.ChunkedArray, ids: Integers, sizes: Integers) -> None:
        """Say which codes the export needs, once: hash, id and bytes of each; the lowest id of a hash stands for it."""
        order = np.argsort(ids, kind="stable")
        _, firsts = np.unique(_encoded(hashes).to_numpy()[order], return_index=True)
        chosen = order[np.sort(firsts)]
        self.hashes = _one_array(hashes.take(pa.array(chosen)))
        self._ids, self.sizes = ids[chosen], sizes[chosen]
        self._offsets = np.full(len(chosen), -1, np.int64)
        self._encodings = np.zeros(len(chosen), np.uint8)
        self._blank = np.zeros(len(chosen), bool)

    def __len__(self) -> int:
        return len(self._ids)

    def numbers(self, hashes: pa.Array | pa.ChunkedArray) -> Integers:
        """The numbers of codes; -1 for one that the export does not need.

        Each call looks at all codes of the export first: better one call for many.
        """
        found = pc.index_in(hashes, value_set=self.hashes).cast(pa.int64()).fill_null(-1)
        return np.asarray(found.to_numpy(), np.int64)

    def encodings(self, numbers: Integers) -> pa.Array:
        """How codes are encoded; only after `note` or `fetch`."""
        return pa.array(_ENCODINGS, pa.large_string()).take(pa.array(self._encodings[numbers]))

    def is_invalid(self, numbers: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which codes are not UTF-8."""
        return np.asarray(self._encodings[numbers] == _ENCODINGS.index(INVALID))

    def is_odd(self, numbers: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which codes fail a check of the code itself."""
        return np.asarray(self._blank[numbers] | (self._encodings[numbers] != 0))

    def flags(self, number: int) -> list[str]:
        """The checks of the code itself that it fails."""
        found = ["code_blank"] if self._blank[number] else []
        return [*found, "code_encoding"] if self._encodings[number] else found

    def text(self, number: int) -> bytes:
        """A code that was fetched or taken, as valid UTF-8; by any thread."""
        code = os.pread(self._file.fileno(), int(self.sizes[number]), int(self._offsets[number]))
        return as_text(code, _ENCODINGS[self._encodings[number]])

    def column(self, numbers: Integers) -> pa.LargeBinaryArray:
        """The bytes of codes that were fetched or taken; by any thread, until its next call. No code becomes an object.

        Memory that is given back and taken again for each row group would cost as much as reading the code.
        """
        sizes, starts = self.sizes[numbers], self._offsets[numbers]
        edges = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(sizes, out=edges[1:])
        room: bytearray | None = getattr(self._rooms, "room", None)
        if room is None or len(room) < edges[-1]:
            room = self._rooms.room = bytearray(max(GROUP_BYTES, int(edges[-1])))
        data = pa.py_buffer(room).slice(0, int(edges[-1]))
        # What lies together in the file is read at once.
        breaks = np.flatnonzero(starts[1:] != starts[:-1] + sizes[:-1]) + 1
        with memoryview(room) as view:
            for first, last in pairwise([0, *breaks.tolist(), len(numbers)]):
                at, rest = int(starts[first]) if first < last else 0, view[edges[first] : edges[last]]
                while rest:
                    got = os.preadv(self._file.fileno(), [rest], at)
                    if not got:
                        raise OSError(errno.EIO, "the temporary file with the code ends early")
                    at, rest = at + got, rest[got:]
        return pa.Array.from_buffers(pa.large_binary(), len(numbers), [None, pa.py_buffer(edges), data])

    def note(self, numbers: Integers, encodings: pa.Array) -> None:
        """Note what an older export says of codes; numbers of -1 are left out."""
        places = pc.index_in(encodings, value_set=pa.array(_ENCODINGS, pa.large_string())).to_numpy()
        self._encodings[numbers[numbers >= 0]] = places[numbers >= 0]

    def note_blank(self, hashes: pa.Array | pa.ChunkedArray) -> None:
        """Note that codes are blank."""
        numbers = self.numbers(hashes)
        self._blank[numbers[numbers >= 0]] = True

    def missing(self, numbers: Integers) -> Integers:
        """Those whose bytes are not there yet, once each, in their order."""
        wanted = np.unique(numbers)
        return wanted[self._offsets[wanted] < 0]

    def take(self, numbers: Integers, codes: pa.Array) -> None:
        """Keep codes of an older export, which was compared with its manifest."""
        edges, data = _edges_and_data(codes)
        rest = data[edges[0] : edges[-1]]
        while rest:
            rest = rest[self._file.write(rest) :]
        self.sizes[numbers] = np.diff(edges)
        self._offsets[numbers] = edges[:-1] + (self._end - int(edges[0]))
        self._end += int(edges[-1] - edges[0])

    def fetch(
        self, numbers: Integers, read: Callable[[Sequence[int]], Iterable[pa.RecordBatch]], progress: Progress
    ) -> Iterator[int]:
        """Fetch codes, in the order of their numbers; yields now and then the number up to which they are there.

        `read`: ids and codes of these ids, by id.

        Raises:
            DataError: a code is not there, or is not what its hash says.
        """
        for first in range(0, len(numbers), _FETCH_ROWS):
            some = numbers[first : first + _FETCH_ROWS]
            ids = self._ids[some]
            done = 0
            for batch in read(ids.tolist()):
                wanted = some[done : done + batch.num_rows]
                there = batch.column(0).to_numpy() == self._ids[wanted]
                if not there.all():
                    done += int(np.argmin(there))
                    break
                self._fetched(wanted, batch.column(1))
                done += batch.num_rows
                yield int(wanted[-1]) + 1
            if done < len(some):
                raise DataError(f"code {ids[done]} is missing; nothing was exported")
            progress("code fetched", first + done, len(numbers))

    def _fetched(self, numbers: Integers, codes: pa.Array) -> None:
        """Check codes against their hashes, look at how they are encoded, and keep them."""
        edges, data = _edges_and_data(codes)
        spans = list(pairwise(edges.tolist()))
        hashes = [hashlib.sha256(data[first:last]).hexdigest() for first, last in spans]
        expected = self.hashes.take(pa.array(numbers)).to_pylist()
        if hashes != expected:
            wrong = next(at for at, sha256 in enumerate(hashes) if sha256 != expected[at])
            raise DataError(
                f"code {self._ids[numbers[wrong]]} does not have the hash that the database gives; nothing was exported"
            )
        plain = _is_plain(codes, data[edges[0] : edges[-1]])
        for at in range(len(codes)) if not plain else _begin_blank(edges, data):
            code = bytes(data[edges[at] : edges[at + 1]])
            self._encodings[numbers[at]] = _ENCODINGS.index(encoding_of(code))
            self._blank[numbers[at]] = is_blank(code)
        self.take(numbers, codes)

    def parts(self) -> list[tuple[int, int]]:
        """The first number and the end of each part; an export without code has one part without rows."""
        return list(pairwise(_edges(self.sizes, 0, len(self), PART_BYTES))) or [(0, 0)]


class Known:
    """The codes of one file of an older export, by row group. Only what was asked for is decoded."""

    def __init__(self, path: Path, numbers: Integers, count: int) -> None:
        """`numbers`: of the code of each row of the file, or -1. `count`: of all codes of the export."""
        self.path = path
        self.numbers = numbers
        with pq.ParquetFile(path) as file:
            details = file.metadata
            rows = [details.row_group(number).num_rows for number in range(details.num_row_groups)]
        #: The first row of each row group, and the end.
        self.edges: Integers = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self._rows = np.full(count + 1, -1, np.int64)
        self._rows[numbers] = np.arange(len(numbers))
        self._rows = self._rows[:-1]

    def has(self, numbers: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of the codes are here."""
        return np.asarray(self._rows[numbers] >= 0)

    def groups_with(self, numbers: Integers) -> dict[int, Integers]:
        """The row groups that these codes are in, and which are in each."""
        groups = np.searchsorted(self.edges, self._rows[numbers], side="right") - 1
        return {int(group): numbers[groups == group] for group in np.unique(groups)}

    def read(self, group: int, numbers: Integers) -> pa.Array:
        """The bytes of these codes, which are in this row group."""
        with pq.ParquetFile(self.path) as file:
            column = _one_array(file.read_row_group(group, columns=["code"], use_threads=False).column(0))
        return column.view(pa.large_binary()).take(pa.array(self._rows[numbers] - self.edges[group]))


def known_parts(paths: Sequence[Path], codes: Codes) -> list[Known]:
    """Parts of an older export; how their codes are encoded is noted."""
    parts = [columns_of(path, ["code_sha256", "code_encoding"]) for path in paths]
    if not parts:
        return []
    whole = pa.concat_tables(parts)
    numbers = codes.numbers(whole.column(0))
    codes.note(numbers, whole.column(1))
    ends = np.cumsum([part.num_rows for part in parts])[:-1]
    return [Known(path, some, len(codes)) for path, some in zip(paths, np.split(numbers, ends), strict=True)]


def _encoded(texts: pa.ChunkedArray) -> pa.Array:
    """Integers that are equal where texts are."""
    return _one_array(texts).dictionary_encode().indices


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


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


def part_name(number: int) -> str:
    """The path of a part in an export."""
    return f"code/part-{number:05}.parquet"


class Part:
    """A part in the making: which of its row groups an older part has already, and which are to be written."""

    def __init__(self, path: Path, codes: Codes, first: int, last: int, old: Known | None) -> None:
        """The codes from the first number to the one before the last. `old`: written by the same release of pyarrow."""
        self.path = path
        self._codes = codes
        self._old = old
        self._edges = _edges(codes.sizes, first, last, GROUP_BYTES)
        #: The numbers of the old part's row groups that are equal; they are the first.
        self._kept = 0
        if old is not None:
            for edges in zip(pairwise(self._edges), pairwise(old.edges.tolist()), strict=False):
                (begin, end), (old_begin, old_end) = edges
                if begin - first != old_begin or not np.array_equal(
                    old.numbers[old_begin:old_end], np.arange(begin, end)
                ):
                    break
                self._kept += 1
        #: Whether the old part is this one.
        self.same = old is not None and self._kept == len(old.edges) - 1 == len(self._edges) - 1

    @property
    def needed(self) -> Integers:
        """The codes that are to be written."""
        return np.arange(self._edges[self._kept], self._edges[-1])

    def write(self, ready: Callable[[int], None]) -> Writer:
        """Write it; the writer says what was written. `ready`: waits until all codes before this number are there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        old = Encoded(self._old.path) if self._old is not None and self._kept else None
        try:
            with Writer(self.path, CODE) as writer:
                for group, (first, last) in enumerate(pairwise(self._edges)):
                    if old is not None and group < self._kept:
                        writer.copy(old.group(group))
                    else:
                        ready(last)
                        writer.build(partial(self._table, np.arange(first, last)))
        finally:
            if old is not None:
                old.close()
        return writer

    def _table(self, numbers: Integers) -> pa.Table:
        codes = self._codes
        columns = [
            codes.hashes.take(pa.array(numbers)),
            pa.array(codes.sizes[numbers]),
            codes.encodings(numbers),
            codes.column(numbers),
        ]
        return pa.Table.from_arrays(columns, schema=CODE)


def _edges(sizes: Integers, first: int, last: int, limit: int) -> list[int]:
    """Where pieces of at most so many bytes begin, and the end; a single code may be larger."""
    ends = np.cumsum(sizes)
    edges = [first]
    while edges[-1] < last:
        begin = edges[-1]
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + limit, side="right"))
        edges.append(min(max(end, begin + 1), last))
    return edges


def link(old: Path, new: Path) -> None:
    """Have the new export share a file with the old one, or copy it where that cannot be."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)
