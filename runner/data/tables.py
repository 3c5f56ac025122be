"""The schemas of an export's parquet files, how they are written, and the digest of what they say.

Equal rows give equal bytes with one version of pyarrow: the boundaries of row groups depend on the rows alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

TIME: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.large_string()

#: The published columns, in this order and of these types. What is more goes into another file.
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


class Writer:
    """A parquet file in the making: compressed with zstd, with a page index."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        light = [column for column in schema.names if column != "code"]
        self.schema = schema
        self.path = path
        self.rows = 0
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            # A dictionary of whole programs costs time and saves nothing; their bounds would bloat the footer.
            use_dictionary=[
                f"{column}.list.element" if column in ("flags", "gpu_types") else column for column in light
            ],
            write_statistics=[column for column in light if column not in ("flags", "gpu_types")],
            write_page_index=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def group(self, table: pa.Table) -> None:
        """Write rows as one row group."""
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows


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
    """A SHA-256 of what tables say, whatever they are encoded with."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows, in their order."""
        columns = [(column.cast(pa.int64()) if column.type == TIME else column).to_pylist() for column in rows.columns]
        for line in zip(*columns, strict=True):
            self._hash.update(repr(line).encode("utf-8", "surrogatepass"))

    def hex(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()


def content_sha256(submissions: Digest, runs: Digest, leaderboards: Digest) -> str:
    """The digest of an export, of those of its tables."""
    return hashlib.sha256(f"{submissions.hex()} {runs.hex()} {leaderboards.hex()}".encode()).hexdigest()


def shown(schema: pa.Schema) -> list[dict[str, Any]]:
    """A schema as the manifest has it."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
