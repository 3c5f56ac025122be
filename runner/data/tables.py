"""The schemas of an export's parquet files, how they are written, and the digest of what they say.

Equal rows give equal bytes with one version of pyarrow: the boundaries of row groups depend on the rows alone.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.data.memory import trim
from runner.data.splice import Encoded, Group, Spliced

TIME: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.large_string()

#: The published columns, in this order and of these types. Further columns go into another file.
FLAT: Final = pa.schema(
    [
        pa.field("submission_id", pa.int64(), nullable=False),
        pa.field("leaderboard_id", pa.int64(), nullable=False),
        pa.field("problem_name", _TEXT, nullable=False),
        pa.field("user_id", _TEXT, nullable=False),
        pa.field("user_name", _TEXT, nullable=False),
        pa.field("code_id", pa.int64(), nullable=False),
        pa.field("file_name", _TEXT, nullable=False),
        pa.field("submission_time", TIME, nullable=False),
        pa.field("status", _TEXT, nullable=False),
        pa.field("score", pa.float64()),
        pa.field("passed", pa.bool_()),
        pa.field("mode", _TEXT),
        pa.field("runner", _TEXT),
        pa.field("code", _TEXT, nullable=False),
    ]
)
#: The same rows in the same order without the code, and what else is known of them.
SUBMISSIONS: Final = pa.schema(
    [
        *(field for field in FLAT if field.name != "code"),
        pa.field("mode_category", _TEXT),
        pa.field("verdict", _TEXT),
        pa.field("run_id", pa.int64()),
        pa.field("score_raw", pa.float64()),
        pa.field("score_invalid_reason", _TEXT),
        pa.field("flags", pa.list_(pa.field("element", _TEXT)), nullable=False),
        pa.field("code_sha256", _TEXT, nullable=False),
        pa.field("code_bytes", pa.int64(), nullable=False),
        pa.field("code_encoding", _TEXT, nullable=False),
        pa.field("assurance_correctness", _TEXT),
        pa.field("assurance_timing", _TEXT),
        pa.field("sol", pa.float64()),
    ]
)
RUNS: Final = pa.schema(
    [
        pa.field("run_id", pa.int64(), nullable=False),
        pa.field("submission_id", pa.int64(), nullable=False),
        pa.field("leaderboard_id", pa.int64(), nullable=False),
        pa.field("problem_name", _TEXT, nullable=False),
        pa.field("runner", _TEXT, nullable=False),
        pa.field("mode", _TEXT, nullable=False),
        pa.field("passed", pa.bool_(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("score_raw", pa.float64()),
        pa.field("score_invalid_reason", _TEXT),
        pa.field("case_index", pa.int64()),
        pa.field("spec", _TEXT),
        pa.field("mean_ns", pa.float64()),
        pa.field("std_ns", pa.float64()),
        pa.field("best_ns", pa.float64()),
        pa.field("runs", pa.int64()),
        pa.field("sol", pa.float64()),
        pa.field("duration_s", pa.float64()),
        pa.field("gpu", _TEXT),
        pa.field("torch", _TEXT),
        pa.field("runtime", _TEXT),
        pa.field("host", _TEXT),
        pa.field("start_time", TIME, nullable=False),
        pa.field("end_time", TIME, nullable=False),
    ]
)
LEADERBOARDS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", _TEXT, nullable=False),
        pa.field("deadline", TIME, nullable=False),
        pa.field("lang", _TEXT),
        pa.field("ranking_by", _TEXT),
        pa.field("description", _TEXT, nullable=False),
        pa.field("gpu_types", pa.list_(pa.field("element", _TEXT)), nullable=False),
        pa.field("visibility", _TEXT, nullable=False),
        pa.field("demanded_timing", _TEXT, nullable=False),
        pa.field("trust_note", _TEXT),
    ]
)
CODE: Final = pa.schema(
    [
        pa.field("code_sha256", _TEXT, nullable=False),
        pa.field("code_bytes", pa.int64(), nullable=False),
        pa.field("code_encoding", _TEXT, nullable=False),
        pa.field("code", pa.large_binary(), nullable=False),
    ]
)
#: Rows of a group without code.
GROUP_ROWS: Final = 20_000
#: Bytes of code in a row group, uncompressed; a single file may be larger.
GROUP_BYTES: Final = 8 * 2**20
#: Ids of submissions whose runs are a row group of `runs.parquet`.
BLOCK: Final = 4096
_DIGEST_ROWS: Final = 8192
#: After so many row groups free memory is given back.
_GROUPS_TO_TRIM: Final = 8


def _options(schema: pa.Schema) -> dict[str, Any]:
    """How every file is written."""
    light = [column for column in schema.names if column != "code"]
    return {
        "compression": "zstd",
        # A dictionary of whole programs costs time and saves nothing; their bounds would bloat the footer.
        "use_dictionary": [f"{name}.list.element" if name in ("flags", "gpu_types") else name for name in light],
        "write_statistics": [column for column in light if column not in ("flags", "gpu_types")],
        "write_page_index": True,
    }


def encoded(rows: pa.Table) -> Encoded:
    """Rows as a parquet file of one row group, in memory."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **_options(rows.schema)) as writer:
        if rows.num_rows:
            writer.write_table(rows, row_group_size=rows.num_rows)
    return Encoded(sink.getvalue())


def columns_of(path: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of a parquet file. `pyarrow.parquet.read_table` would load much more of pyarrow first."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=list(names), use_threads=False)


class Writer:
    """A parquet file in the making, a row group at a time: compressed with zstd, with a page index.

    Row groups are encoded by two other threads, and written in their order. One of an older file is copied as it is.
    """

    #: Row groups that are encoded or wait for it: what is held in memory.
    _WAITING: Final = 1

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self.path = path
        self._file = Spliced(path, encoded(schema.empty_table()).footer)
        self._encoders = ThreadPoolExecutor(2)
        self._waiting: deque[Future[Encoded] | Group] = deque()
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._waiting:
                self._write_first()
            self._encoders.shutdown(cancel_futures=True)
        except BaseException as failed:
            self._file.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._file.__exit__(kind, error, trace)

    @property
    def rows(self) -> int:
        """Rows of the file, once it is closed."""
        return self._file.rows

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, once it is closed."""
        return self._file.sha256

    def group(self, rows: pa.Table) -> None:
        """Write rows as one row group; none make none."""
        if rows.num_rows:
            self._add(self._encoders.submit(encoded, rows))

    def build(self, make: Callable[[], pa.Table]) -> None:
        """Write rows that another thread makes as one row group."""
        self._add(self._encoders.submit(lambda: encoded(make())))

    def copy(self, group: Group) -> None:
        """Write a row group of an older file as it is."""
        self._add(group)

    def _add(self, group: Future[Encoded] | Group) -> None:
        self._waiting.append(group)
        while len(self._waiting) > self._WAITING:
            self._write_first()

    def _write_first(self) -> None:
        first = self._waiting.popleft()
        self._file.add(first if isinstance(first, Group) else first.result().group(0))
        self._done += 1
        if self._done % _GROUPS_TO_TRIM == 0:
            trim()


class Grouped:
    """Collects rows for a writer, and writes them in groups of `GROUP_ROWS`, however they come."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Take rows, and write every group that is full."""
        self._waiting.append(table)
        self._rows += table.num_rows
        while self._rows >= GROUP_ROWS:
            whole = pa.concat_tables(self._waiting)
            self._writer.group(whole.slice(0, GROUP_ROWS).combine_chunks())
            rest = whole.slice(GROUP_ROWS)
            self._waiting, self._rows = [rest], rest.num_rows

    def finish(self) -> None:
        """Write what is left."""
        if self._rows:
            self._writer.group(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._rows = [], 0


def table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows as a table; times are microseconds since 1970."""
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        if field.type == TIME:
            arrays.append(pa.array(values, pa.int64()).cast(TIME))
        else:
            arrays.append(pa.array(values, field.type, from_pandas=False))
    return pa.Table.from_arrays(arrays, schema=schema)


class Digest:
    """A SHA-256 of what tables say, whatever they are encoded with and in whatever pieces they come."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows, in their order."""
        self._waiting.append(pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows)
        self._rows += rows.num_rows
        while self._rows >= _DIGEST_ROWS:
            whole = pa.concat_tables(self._waiting)
            self._take(whole.slice(0, _DIGEST_ROWS))
            self._waiting = [whole.slice(_DIGEST_ROWS)]
            self._rows -= _DIGEST_ROWS

    def hex(self) -> str:
        """The digest of all that was taken."""
        if self._rows:
            self._take(pa.concat_tables(self._waiting))
        self._waiting, self._rows = [], 0
        return self._hash.hexdigest()

    def _take(self, rows: pa.Table) -> None:
        self._hash.update(f"{rows.num_rows}\n".encode())
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            self._hash.update(f"{name}\n".encode())
            _hash_values(self._hash, column.combine_chunks())


def _hash_values(into: hashlib._Hash, values: pa.Array) -> None:
    """Nulls, then lengths where they differ, then the values; what an array holds under a null counts for nothing."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    into.update(_bytes_of(values.is_valid().cast(pa.uint8())))
    if pa.types.is_list(values.type):
        into.update(_bytes_of(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())))
        _hash_values(into, values.flatten())
    elif pa.types.is_large_string(values.type):
        filled = pc.fill_null(values, "") if values.null_count else values
        into.update(_bytes_of(pc.binary_length(filled)))
        _, offsets, data = filled.buffers()
        first, last = np.frombuffer(offsets, np.int64)[[filled.offset, filled.offset + len(filled)]]
        if data is not None:
            into.update(memoryview(data)[first:last])
    else:
        plain = {pa.bool_(): pa.uint8(), TIME: pa.int64()}.get(values.type, values.type)
        filled = values.cast(plain)
        into.update(_bytes_of(pc.fill_null(filled, 0) if filled.null_count else filled))


def _bytes_of(numbers: pa.Array) -> bytes:
    return bytes(numbers.to_numpy(zero_copy_only=False).tobytes())


def block_of(submission_id: int) -> int:
    """The block of a submission: `runs.parquet` has a row group for each block that has runs."""
    return submission_id // BLOCK


def by_block(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Rows of `runs.parquet`, in their order, by block."""
    blocks = rows.column("submission_id").to_numpy() // BLOCK
    edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
    for first, last in pairwise(edges):
        if first < last:
            yield int(blocks[first]), rows.slice(first, last - first)


class BlockDigests:
    """The digests of the blocks of `runs.parquet`, whose rows may come in any pieces, in their order."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._block: int | None = None
        self._digest = Digest()

    def add(self, rows: pa.Table) -> None:
        """Take rows."""
        for block, some in by_block(rows):
            if block != self._block:
                self._close()
                self._block = block
            self._digest.add(some)

    def _close(self) -> None:
        if self._block is not None:
            self._done.append(self._digest.hex())
        self._digest = Digest()

    def all(self) -> list[str]:
        """The digest of each block."""
        self._close()
        self._block = None
        return self._done


def content_sha256(submissions: Digest, runs: Sequence[str], leaderboards: Digest) -> str:
    """The digest of an export, of those of its tables; `runs`: of each block of runs."""
    return hashlib.sha256(f"{submissions.hex()} {' '.join(runs)} {leaderboards.hex()}".encode()).hexdigest()


def shown(schema: pa.Schema) -> list[dict[str, Any]]:
    """A schema as the manifest has it."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
