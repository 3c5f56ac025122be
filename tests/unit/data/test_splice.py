"""Row groups that are copied: the file is, byte for byte, the one that pyarrow writes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.data.splice import Encoded, Spliced, _read_struct, _written
from runner.data.tables import RUNS, BlockDigests, Digest, Writer, encoded


def sample(number: int, rows: int = 500) -> pa.Table:
    """A table with every kind of column that an export has, and nulls in it."""
    return pa.table(
        {
            "number": pa.array(range(number, number + rows), pa.int64()),
            "text": pa.array(
                [f"{number}-{row % 7}" * 30 if row % 5 else None for row in range(rows)], pa.large_string()
            ),
            "flags": pa.array(
                [["a"], [], ["b", "c"], []] * (rows // 4), pa.list_(pa.field("element", pa.large_string()))
            ),
            "passed": pa.array([True, None, False, True] * (rows // 4)),
            "score": pa.array([row * 1e-6 if row % 3 else None for row in range(rows)]),
            "code": pa.array([b"x" * (row * 37 % 4000) for row in range(rows)], pa.large_binary()),
        }
    )


def written(path: Path, tables: list[pa.Table]) -> Path:
    """What pyarrow writes, a row group for each table."""
    with pq.ParquetWriter(path, tables[0].schema, compression="zstd", write_page_index=True) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=table.num_rows)
    return path


def test_a_file_of_copied_groups_is_the_one_that_pyarrow_writes(tmp_path: Path) -> None:
    """From several files in memory, and from one on disk; footer, page index and all."""
    tables = [sample(number) for number in range(20)]
    whole = written(tmp_path / "whole", tables).read_bytes()
    pieces = [Encoded(written(tmp_path / "piece", [table]).read_bytes()) for table in tables]
    with Spliced(tmp_path / "one", pieces[0].footer) as one:
        for piece in pieces:
            one.add(piece.group(0))
    assert (tmp_path / "one").read_bytes() == whole
    assert (one.sha256, one.rows) == (hashlib.sha256(whole).hexdigest(), 10_000)
    file = Encoded(tmp_path / "one")
    with Spliced(tmp_path / "two", file.footer) as two:
        for number in range(len(file)):
            two.add(file.group(number))
    file.close()
    assert (tmp_path / "two").read_bytes() == whole


def test_groups_may_be_left_out_and_put_elsewhere(tmp_path: Path) -> None:
    """Old ones between new ones, in another order; every reader's offsets and page index lead to the right rows."""
    tables = [sample(number * 1000) for number in range(6)]
    old = written(tmp_path / "old", [tables[5], tables[1], tables[3]])
    file = Encoded(old)
    with Writer(tmp_path / "new.parquet", tables[0].schema) as writer:
        for number, table in enumerate(tables):
            kept = {1: 1, 3: 2, 5: 0}.get(number)
            if kept is None:
                writer.group(table)
            else:
                writer.copy(file.group(kept))
    file.close()
    found = pq.ParquetFile(tmp_path / "new.parquet")
    assert found.read().equals(pa.concat_tables(tables))
    assert [found.read_row_group(number).column("number")[0].as_py() for number in range(6)] == list(
        range(0, 6000, 1000)
    )
    assert pq.read_table(tmp_path / "new.parquet", filters=[("number", "=", 3007)]).num_rows == 1
    duckdb = pytest.importorskip("duckdb")
    query = f"SELECT count(*), sum(octet_length(code)) FROM '{tmp_path}/new.parquet' WHERE number >= 3000"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [(1500, 3 * sum(len(code) for code in tables[0]["code"].to_pylist()))]
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(tmp_path / "new.parquet")["number"].to_list() == found.read()["number"].to_pylist()


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    """An empty file, and another one."""
    for content in (b"", b"PAR1", b"something else entirely"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ValueError, match="no parquet file"):
            Encoded(tmp_path / "file")


def test_a_file_without_rows_is_one(tmp_path: Path) -> None:
    """With its schema."""
    with Writer(tmp_path / "empty", RUNS) as writer:
        pass
    assert writer.rows == 0
    assert pq.read_table(tmp_path / "empty").schema.equals(RUNS)


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.binary(max_size=40), st.integers(1, 20_000))
def test_structs_survive(number: int, data: bytes, field: int) -> None:
    """Whatever numbers, bytes and fields they hold."""
    struct = {
        field: (6, number),
        field + 1: (8, data),
        field + 17: (9, (5, [number % 2**31] * 20)),
        field + 18: (2, False),
    }
    written = _written(struct)
    read, end = _read_struct(written + b"more", 0)
    assert end == len(written)
    assert read[field] == (6, number)
    assert read[field + 1] == (8, data)
    assert read[field + 17] == (9, (5, [number % 2**31] * 20))
    assert read[field + 18][1] is False
    assert _written(read) == _written(struct)


def test_a_digest_depends_on_the_rows_alone() -> None:
    """Not on the pieces that they come in, nor on what an array holds under a null."""
    table = sample(1, 20_000).drop_columns("code")
    one, two, three = Digest(), Digest(), Digest()
    one.add(table)
    for first in range(0, 20_000, 777):
        two.add(table.slice(first, 777))
    three.add(table.set_column(0, "number", pa.array([*range(1, 20_000), 7], pa.int64())))
    assert one.hex() == two.hex() != three.hex()
    under, plain = Digest(), Digest()
    shown = pa.array([1.0, 2.0], mask=__import__("numpy").array([False, True]))
    under.add(pa.table({"a": shown}))
    plain.add(pa.table({"a": pa.array([1.0, None])}))
    assert under.hex() == plain.hex()


def test_digests_of_blocks_are_those_of_their_rows() -> None:
    """However the rows come."""
    ids = pa.array([1, 2, 4095, 4096, 5000, 9000], pa.int64())
    table = pa.table({"submission_id": ids, "x": pa.array(range(6))})
    whole, pieces = BlockDigests(), BlockDigests()
    whole.add(table)
    for number in range(6):
        pieces.add(table.slice(number, 1))
    assert len(set(whole.all())) == 3
    assert whole.all() == pieces.all()


def test_equal_rows_are_encoded_as_equal_bytes() -> None:
    """Whatever tables they are slices of."""
    table = sample(3)
    one = encoded(table.slice(100, 50).combine_chunks())
    two = encoded(pa.concat_tables([table.slice(100, 20), table.slice(120, 30)]).combine_chunks())
    assert one.footer == two.footer
    assert one.group(0).indexes == two.group(0).indexes
