"""Submitted code: fetched once per hash, kept in `code/part-*.parquet`, read again in any order, in constant memory.

The parts hold the codes by their ids in the database, and a new part begins where the bytes say so. New submissions
have higher ids, so old parts stay as they are and only the last one grows.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner.data import Progress
from runner.data.tables import CODE, GROUP_BYTES, Writer
from runner.errors import DataError

#: Bytes of code in a part, uncompressed.
PART_BYTES: Final = 128 * 2**20
#: Bytes of code that are asked for at once.
_FETCH_BYTES: Final = 4 * 2**20
_FETCH_ROWS: Final = 2000
#: Rows of a part that are read at once.
_READ_ROWS: Final = 256

PLAIN: Final = "utf-8"
WITH_NUL: Final = "utf-8 with NUL"
INVALID: Final = "invalid"


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
    """The codes of an export: which there are, and their bytes in a temporary file without a name."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the temporary file is made; it needs the room of all code, uncompressed."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
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
        place = self._places.setdefault(sha256, len(self._ids))
        if place == len(self._ids):
            self._ids.append(code_id)
            self._bytes.append(size)
            self._offsets.append(-1)
        else:
            self._ids[place] = min(self._ids[place], code_id)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def total_bytes(self) -> int:
        """Bytes of all codes that are wanted."""
        return sum(self._bytes)

    def size(self, sha256: str) -> int:
        """Bytes of a code."""
        return self._bytes[self._places[sha256]]

    def encoding(self, sha256: str) -> str:
        """How a code is encoded; only after `take_from` and `fetch`."""
        return self._encodings.get(sha256, PLAIN)

    def flags(self, sha256: str) -> list[str]:
        """The checks of the code itself that it fails."""
        found = ["code_blank"] if sha256 in self._blank else []
        return [*found, "code_encoding"] if sha256 in self._encodings else found

    def read(self, sha256: str) -> bytes:
        """The bytes of a code."""
        place = self._places[sha256]
        return os.pread(self._file.fileno(), self._bytes[place], self._offsets[place])

    def in_order(self) -> list[str]:
        """The hashes by id."""
        return sorted(self._places, key=lambda sha256: self._ids[self._places[sha256]])

    def take_from(self, parts: Sequence[Path], progress: Progress) -> int:
        """Take what is wanted from the parts of an older export. Returns how many codes that were."""
        taken = 0
        wanted = len(self)
        for path in parts:
            with pq.ParquetFile(path) as part:
                for batch in part.iter_batches(
                    _READ_ROWS, columns=["code_sha256", "code_encoding", "code"], use_threads=False
                ):
                    hashes, encodings, codes = (column.to_pylist() for column in batch.columns)
                    for sha256, encoding, code in zip(hashes, encodings, codes, strict=True):
                        place = self._places.get(sha256)
                        if place is not None and self._offsets[place] < 0:
                            self._keep(sha256, place, code, encoding)
                            taken += 1
            progress("code known", taken, wanted)
        return taken

    def fetch(self, read: Callable[[Sequence[int]], Mapping[int, bytes]], progress: Progress) -> int:
        """Fetch what is still missing. Returns how many codes that were.

        Raises:
            DataError: a code is not there, or is not what its hash says.
        """
        missing = [sha256 for sha256 in self.in_order() if self._offsets[self._places[sha256]] < 0]
        done = 0
        with ThreadPoolExecutor(1) as other:
            kept: Future[None] | None = None
            for some in self._in_bites(missing):
                # The other thread looks at one piece while this one waits for the next.
                found = read([self._ids[self._places[sha256]] for sha256 in some])
                if kept is not None:
                    kept.result()
                kept = other.submit(self._keep_sound, some, found)
                done += len(some)
                progress("code fetched", done, len(missing))
            if kept is not None:
                kept.result()
        return done

    def _keep_sound(self, hashes: Sequence[str], found: Mapping[int, bytes]) -> None:
        for sha256 in hashes:
            place = self._places[sha256]
            code = found.get(self._ids[place])
            if code is None or hashlib.sha256(code).hexdigest() != sha256:
                what = "is missing" if code is None else "does not have the hash that the database gives"
                raise DataError(f"code {self._ids[place]} {what}; nothing was exported")
            self._keep(sha256, place, code, encoding_of(code))

    def _in_bites(self, hashes: Sequence[str]) -> Iterator[list[str]]:
        bite: list[str] = []
        size = 0
        for sha256 in hashes:
            if bite and (size + self.size(sha256) > _FETCH_BYTES or len(bite) >= _FETCH_ROWS):
                yield bite
                bite, size = [], 0
            bite.append(sha256)
            size += self.size(sha256)
        if bite:
            yield bite

    def _keep(self, sha256: str, place: int, code: bytes, encoding: str) -> None:
        # Unbuffered would be a call per code; the buffer is flushed before anything is read.
        self._file.write(code)
        self._bytes[place] = len(code)
        self._offsets[place] = self._end
        self._end += len(code)
        if encoding != PLAIN:
            self._encodings[sha256] = encoding
        if is_blank(code):
            self._blank.add(sha256)

    def flush(self) -> None:
        """Make everything that was kept readable."""
        self._file.flush()

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


def part_name(number: int) -> str:
    """The path of a part in an export."""
    return f"code/part-{number:05}.parquet"


def same_codes(path: Path, hashes: Sequence[str]) -> bool:
    """Whether a part of an older export holds these codes and no other, in this order."""
    with pq.ParquetFile(path) as part:
        if part.metadata.num_rows != len(hashes):
            return False
        known = iter(hashes)
        return all(
            batch.column(0).to_pylist() == list(islice(known, batch.num_rows))
            for batch in part.iter_batches(columns=["code_sha256"])
        )


def write_part(path: Path, codes: Codes, hashes: Sequence[str]) -> int:
    """Write a part; returns its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path, CODE) as writer:
        for some in in_groups(hashes, codes.size):
            columns = [
                pa.array(some, pa.large_string()),
                pa.array([codes.size(sha256) for sha256 in some], pa.int64()),
                pa.array([codes.encoding(sha256) for sha256 in some], pa.large_string()),
                pa.array([codes.read(sha256) for sha256 in some], pa.large_binary()),
            ]
            writer.group(pa.Table.from_arrays(columns, schema=CODE))
        return writer.rows


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
