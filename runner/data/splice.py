"""Parquet files put together from row groups that are encoded already: new ones, and ones of an older file.

pyarrow writes and reads parquet, but cannot copy a row group without decoding it. Here the bytes of its columns are
copied, and only the offsets in the footer and in the page index are written anew. The footer is a structure of Thrift's
compact protocol, which is read and written without a schema: structs are dictionaries by field number. The numbers are
those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.

Equal row groups give equal bytes, whether they come from an older file or were encoded now.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa

_MAGIC: Final = b"PAR1"
#: Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
#: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, OffsetIndex, PageLocation: numbers of their fields.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_NUM_ROWS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _META, _OFFSET_INDEX, _OFFSET_INDEX_BYTES, _COLUMN_INDEX, _COLUMN_INDEX_BYTES = 2, 3, 4, 5, 6, 7
_COMPRESSED_BYTES, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTER = 7, 9, 10, 11, 14
_PAGE_LOCATIONS, _PAGE_OFFSET = 1, 1
_COPY_BYTES: Final = 2**20

#: A value with its type; a list or set: type of the elements and the elements.
Value = tuple[int, Any]
Struct = dict[int, Value]


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    """A struct that begins there, with its fields in the order of their numbers; and where it ends.

    A footer has tens of thousands of numbers, so most are read without a call.
    """
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _read_signed(data, at)
        if _I16 <= kind <= _I64:
            value: Any = data[at]
            at += 1
            if value > 127:
                value, at = _read_unsigned(data, at - 1)
            value = (value >> 1) ^ -(value & 1)
        elif kind in (_TRUE, _FALSE):
            value = kind == _TRUE
        else:
            value, at = _read_value(data, at, kind)
        found[number] = (kind, value)
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == _BINARY:
        size, at = _read_unsigned(data, at)
        return data[at : at + size], at + size
    if kind == _STRUCT:
        return _read_struct(data, at)
    if kind in (_LIST, _SET):
        head = data[at]
        size, at = (head >> 4, at + 1) if head >> 4 != 15 else _read_unsigned(data, at + 1)
        values = []
        for _ in range(size):
            value, at = _read_value(data, at, head & 15)
            values.append(value)
        return (head & 15, values), at
    if kind in (_I16, _I32, _I64):
        return _read_signed(data, at)
    if kind in (_BYTE, _TRUE, _FALSE):
        return data[at], at + 1
    if kind == _DOUBLE:
        return data[at : at + 8], at + 8
    raise ValueError(f"the footer has a value of type {kind}, which parquet does not use")


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _read_signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _written(fields: Struct) -> bytes:
    """A struct as bytes."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        written = (_TRUE if value else _FALSE) if kind in (_TRUE, _FALSE) else kind
        step = number - last
        if 0 < step <= 15:
            out.append(step << 4 | written)
        else:
            out.append(written)
            _write_unsigned(out, number << 1)
        last = number
        if _I16 <= kind <= _I64:
            coded = value << 1 if value >= 0 else (-value << 1) - 1
            while coded > 127:
                out.append(coded & 127 | 128)
                coded >>= 7
            out.append(coded)
        elif kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401 - any value of the protocol
    if kind == _BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind in (_LIST, _SET):
        element, values = value
        if len(values) < 15:
            out.append(len(values) << 4 | element)
        else:
            out.append(0xF0 | element)
            _write_unsigned(out, len(values))
        for one in values:
            _write_value(out, element, one)
    elif kind in (_I16, _I32, _I64):
        _write_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == _DOUBLE:
        out += value
    else:
        out.append(value)


def _write_unsigned(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


@dataclass(frozen=True)
class Group:
    """A row group in a file or in memory: what the footer says of it, and where its bytes are."""

    rows: int
    fields: Struct
    first: int
    size: int
    #: Of each column: column index and offset index, as they are in the file; None where it has none.
    indexes: list[tuple[bytes | None, bytes | None]]
    #: The file, or the bytes that were encoded.
    source: int | memoryview


class Encoded:
    """The row groups of a parquet file, by number. A file stays open until `close`."""

    def __init__(self, source: Path | bytes | pa.Buffer) -> None:
        """Raises OSError or ValueError if it cannot be read as a parquet file."""
        if isinstance(source, Path):
            self._source: int | memoryview = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            size = os.fstat(self._source).st_size
        else:
            self._source = memoryview(source)
            size = self._source.nbytes
        tail = self._read(size - 8, 8) if size >= 8 else b""
        if tail[4:] != _MAGIC:
            raise ValueError("no parquet file")
        length = int.from_bytes(tail[:4], "little")
        self.footer, _ = _read_struct(self._read(size - 8 - length, length), 0)

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._source, int):
            os.close(self._source)

    def __len__(self) -> int:
        return len(self.footer[_ROW_GROUPS][1][1])

    def group(self, number: int) -> Group:
        """One row group."""
        fields: Struct = self.footer[_ROW_GROUPS][1][1][number]
        chunks = fields[_COLUMNS][1][1]
        firsts = [_start(chunk[_META][1]) for chunk in chunks]
        ends = [first + chunk[_META][1][_COMPRESSED_BYTES][1] for first, chunk in zip(firsts, chunks, strict=True)]
        return Group(
            rows=fields[_GROUP_NUM_ROWS][1],
            fields=fields,
            first=min(firsts),
            size=max(ends) - min(firsts),
            indexes=[(self._index(chunk, _COLUMN_INDEX), self._index(chunk, _OFFSET_INDEX)) for chunk in chunks],
            source=self._source,
        )

    def _index(self, chunk: Struct, field: int) -> bytes | None:
        # The number of the size follows that of the offset.
        return self._read(chunk[field][1], chunk[field + 1][1]) if field in chunk else None

    def _read(self, first: int, size: int) -> bytes:
        if isinstance(self._source, int):
            return os.pread(self._source, size, first)
        return bytes(self._source[first : first + size])


def _start(meta: Struct) -> int:
    """Where a column's bytes begin."""
    return int(min(meta[field][1] for field in (_DATA_PAGE, _DICTIONARY_PAGE) if field in meta))


class Spliced:
    """A parquet file in the making, row group by row group."""

    def __init__(self, path: Path, footer: Struct) -> None:
        """`footer`: of a file of the same schema, written by the same release of pyarrow."""
        self._file: BinaryIO = path.open("wb")
        self._hash = hashlib.sha256()
        #: Where what is copied passes: memory that is given back and taken again costs more than the copy.
        self._room = memoryview(bytearray(_COPY_BYTES))
        self._at = 0
        self._footer = footer
        self._groups: list[Struct] = []
        self._indexes: list[list[tuple[bytes | None, bytes | None]]] = []
        self.rows = 0
        self._put(_MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._file.close()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, once it is closed."""
        return self._hash.hexdigest()

    @property
    def size(self) -> int:
        """The bytes of the file so far."""
        return self._at

    def add(self, group: Group) -> None:
        """Copy a row group to the end."""
        shift = self._at - group.first
        if not isinstance(group.source, int):
            self._put(group.source[group.first : group.first + group.size])
        else:
            for first in range(group.first, group.first + group.size, _COPY_BYTES):
                room = self._room[: group.first + group.size - first]
                if os.preadv(group.source, [room], first) != len(room):
                    raise OSError(errno.EIO, "the older file ends early")
                self._put(room)
        # Copies also where nothing moves: `_finish` writes to them.
        chunks = [_shifted_chunk(chunk, shift) if shift else dict(chunk) for chunk in group.fields[_COLUMNS][1][1]]
        fields = {
            **group.fields,
            _COLUMNS: (_LIST, (_STRUCT, chunks)),
            _GROUP_OFFSET: (_I64, self._at - group.size),
        }
        if _GROUP_ORDINAL in fields:
            if len(self._groups) < 2**15:
                fields[_GROUP_ORDINAL] = (_I16, len(self._groups))
            else:
                del fields[_GROUP_ORDINAL]
        self._groups.append(fields)
        self._indexes.append(
            [
                (column, _shifted_index(offset, shift) if offset is not None and shift else offset)
                for column, offset in group.indexes
            ]
        )
        self.rows += group.rows

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._at += len(data)

    def _finish(self) -> None:
        """Write the page index and the footer."""
        pages = bytearray()
        for which, field in ((0, _COLUMN_INDEX), (1, _OFFSET_INDEX)):
            for fields, indexes in zip(self._groups, self._indexes, strict=True):
                for chunk, pair in zip(fields[_COLUMNS][1][1], indexes, strict=True):
                    index = pair[which]
                    if index is not None:
                        chunk[field], chunk[field + 1] = (_I64, self._at + len(pages)), (_I32, len(index))
                        pages += index
        self._put(bytes(pages))
        footer = _written(
            {
                **self._footer,
                _NUM_ROWS: (_I64, self.rows),
                _ROW_GROUPS: (_LIST, (_STRUCT, self._groups)),
            }
        )
        self._put(footer)
        self._put(struct.pack("<I", len(footer)) + _MAGIC)


def _shifted_chunk(chunk: Struct, shift: int) -> Struct:
    meta = dict(chunk[_META][1])
    for field in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTER):
        if field in meta:
            meta[field] = (_I64, meta[field][1] + shift)
    moved = {**chunk, _META: (_STRUCT, meta)}
    if chunk[_CHUNK_OFFSET][1]:
        moved[_CHUNK_OFFSET] = (_I64, chunk[_CHUNK_OFFSET][1] + shift)
    return moved


def _shifted_index(index: bytes, shift: int) -> bytes:
    """An offset index whose pages lie elsewhere."""
    fields, _ = _read_struct(index, 0)
    kind, pages = fields[_PAGE_LOCATIONS][1]
    moved = [{**page, _PAGE_OFFSET: (_I64, page[_PAGE_OFFSET][1] + shift)} for page in pages]
    return _written({**fields, _PAGE_LOCATIONS: (_LIST, (kind, moved))})
