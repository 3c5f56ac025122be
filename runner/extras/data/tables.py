"""The schemas of an export's parquet files, and how they are written.

Equal rows give equal bytes with one version of pyarrow: the boundaries of row groups depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
RECEIPTS: Final = pa.schema(
    [
        pa.field("job_id", pa.int64(), nullable=False),
        pa.field("submission_id", pa.int64(), nullable=False),
        pa.field("runner", _TEXT, nullable=False),
        pa.field("run", _TEXT, nullable=False),
        pa.field("retired_as", _TEXT),
        pa.field("receipt", _TEXT, nullable=False),
    ]
)
FINALS: Final = pa.schema(
    [
        pa.field("leaderboard_id", pa.int64(), nullable=False),
        pa.field("problem_name", _TEXT, nullable=False),
        pa.field("runner", _TEXT, nullable=False),
        pa.field("rank", pa.int64()),
        pa.field("submission_id", pa.int64(), nullable=False),
        pa.field("user_id", _TEXT, nullable=False),
        pa.field("user_name", _TEXT, nullable=False),
        pa.field("score", pa.float64()),
        pa.field("score_low", pa.float64()),
        pa.field("score_high", pa.float64()),
        pa.field("evaluations", pa.int64(), nullable=False),
        pa.field("hosts", pa.int64(), nullable=False),
        pa.field("spread_hosts", pa.float64()),
        pa.field("spread_rounds", pa.float64()),
        pa.field("fault", _TEXT),
        pa.field("rank_before", pa.int64(), nullable=False),
        pa.field("ended_at", TIME, nullable=False),
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
#: Every table of an export but the code, the flat file and receipts.
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


def schema_of(path: str, *, flat: str) -> pa.Schema:
    """The schema of a parquet file of an export, whose flat file is `flat`."""
    return {flat: FLAT, **TABLES, RECEIPTS_FILE: RECEIPTS}.get(path, CODE)


def shown(schema: pa.Schema) -> list[dict[str, Any]]:
    """A schema as the manifest has it."""
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
