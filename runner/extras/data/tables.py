"""The schemas of an export's parquet files, how they are written, and the digest of what they say.

Equal rows give equal bytes with one version of pyarrow: the boundaries of row groups depend on the rows alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    "bool": pa.bool_(),
    "bytes": pa.large_binary(),
    "int": pa.int64(),
    "number": pa.float64(),
    "text": pa.large_string(),
    "texts": pa.list_(pa.field("element", pa.large_string())),
    "time": TIME,
}


def _schema(columns: str) -> pa.Schema:
    """A schema from names with their types, such as `score number?`; a question mark: it may be null."""
    pairs = (column.split() for column in columns.split(","))
    return pa.schema(
        [pa.field(name, _TYPES[kind.removesuffix("?")], nullable=kind.endswith("?")) for name, kind in pairs]
    )


#: The published columns, in this order and of these types. Further columns go into another file.
FLAT: Final = _schema("""
    submission_id int, leaderboard_id int, problem_name text, user_id text, user_name text, code_id int, file_name text,
    submission_time time, status text, score number?, passed bool?, mode text?, runner text?, code text
""")
#: The same rows in the same order without the code, and what else is known of them.
SUBMISSIONS: Final = pa.schema([
    *(field for field in FLAT if field.name != "code"),
    *_schema("""
        mode_category text?, verdict text?, run_id int?, score_raw number?, score_invalid_reason text?, flags texts,
        code_sha256 text, code_bytes int, code_encoding text, assurance_correctness text?, assurance_timing text?,
        sol number?
    """),
])  # fmt: skip
RUNS: Final = _schema("""
    run_id int, submission_id int, leaderboard_id int, problem_name text, runner text, mode text, passed bool,
    score number?, score_raw number?, score_invalid_reason text?, case_index int?, spec text?, mean_ns number?,
    std_ns number?, best_ns number?, runs int?, sol number?, duration_s number?, gpu text?, torch text?, runtime text?,
    host text?, start_time time, end_time time
""")
LEADERBOARDS: Final = _schema("""
    id int, name text, deadline time, lang text?, ranking_by text?, description text, gpu_types texts, visibility text,
    demanded_timing text, trust_note text?
""")
RECEIPTS: Final = _schema("job_id int, submission_id int, runner text, run text, retired_as text?, receipt text")
FINALS: Final = _schema("""
    leaderboard_id int, problem_name text, runner text, rank int?, submission_id int, user_id text, user_name text,
    score number?, score_low number?, score_high number?, evaluations int, hosts int, spread_hosts number?,
    spread_rounds number?, fault text?, rank_before int, ended_at time
""")
CODE: Final = _schema("code_sha256 text, code_bytes int, code_encoding text, code bytes")
#: What the database says of a code; no file of an export.
CODE_KEYS: Final = _schema("code_id int?, code_sha256 text?, code_bytes int?, submission_id int?")
#: Every table of an export but the code, the flat file and receipts, in the order in which `content_sha256` has them.
TABLES: Final = {
    "submissions.parquet": SUBMISSIONS,
    "runs.parquet": RUNS,
    "leaderboards.parquet": LEADERBOARDS,
    "finals.parquet": FINALS,
}
#: What an export has where it was asked for.
RECEIPTS_FILE: Final = "receipts.parquet"
#: Rows of a group without code.
GROUP_ROWS: Final = 20_000
#: Bytes of code in a row group, uncompressed; a single file may be larger.
GROUP_BYTES: Final = 8 * 2**20
_DIGEST_ROWS: Final = 8192


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


class Writer:
    """A parquet file, written a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, **_options(schema))
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def group(self, rows: pa.Table) -> None:
        """Write rows as one row group; none make none."""
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self.rows += rows.num_rows


def groups(pieces: Iterable[pa.Table], *, code_bytes: int | None = None) -> Iterator[pa.Table]:
    """Rows in groups of at most `GROUP_ROWS`, however they come.

    `code_bytes`: the most that a group's column of this name adds up to; a single row may have more.
    """
    waiting: pa.Table | None = None
    for piece in pieces:
        waiting = piece if waiting is None else pa.concat_tables([waiting, piece])
        while (size := _group_size(waiting, code_bytes)) < waiting.num_rows:
            yield waiting.slice(0, size).combine_chunks()
            waiting = waiting.slice(size)
    if waiting is not None and waiting.num_rows:
        yield waiting.combine_chunks()


def _group_size(rows: pa.Table, code_bytes: int | None) -> int:
    if code_bytes is None:
        return GROUP_ROWS
    ends = np.cumsum(rows.column("code_bytes").slice(0, GROUP_ROWS).to_numpy())
    return max(1, int(np.searchsorted(ends, code_bytes, side="right")))


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


def content_sha256(digests: Mapping[str, Digest]) -> str:
    """The digest of an export, of those of `TABLES`."""
    return hashlib.sha256(" ".join(digests[name].hex() for name in TABLES).encode()).hexdigest()


def schema_of(path: str, *, flat: str) -> pa.Schema:
    """The schema of a parquet file of an export, whose flat file is `flat`."""
    return {flat: FLAT, **TABLES, RECEIPTS_FILE: RECEIPTS}.get(path, CODE)


def shown(schema: pa.Schema) -> list[dict[str, Any]]:
    """A schema as the manifest has it."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
