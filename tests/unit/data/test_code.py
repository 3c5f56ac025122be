"""Codes that are put aside and read again."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from runner.data.code import INVALID, PLAIN, WITH_NUL, Codes
from runner.errors import DataError

CODES = (b"# first\n", b"", b"x = '\xff'\n", b"\t\n ", b" # not blank", b"a\0b", "# ü\n".encode(), b"# last")


def sha256(code: bytes) -> str:
    """The hash of a code."""
    return hashlib.sha256(code).hexdigest()


def wanted(folder: Path, texts: Sequence[bytes], ids: Sequence[int]) -> Codes:
    """An export that needs these codes."""
    codes = Codes(folder)
    hashes = pa.chunked_array([pa.array([sha256(text) for text in texts], pa.large_string())])
    codes.want(hashes, np.array(ids), np.array([len(text) for text in texts]))
    return codes


def fetch(codes: Codes, batches: Sequence[pa.RecordBatch]) -> list[int]:
    """Fetch all of them; returns the numbers up to which they were there."""
    return list(codes.fetch(np.arange(len(codes)), lambda _ids: batches, lambda _stage, _done, _total: None))


def fetched(folder: Path, kind: pa.DataType) -> Codes:
    """All of them, fetched in one batch that does not begin at its first value."""
    codes = wanted(folder, CODES, range(1, len(CODES) + 1))
    ids = pa.array([0, *range(1, len(CODES) + 1)], pa.int32())
    batch = pa.record_batch([ids, pa.array([b"another", *CODES], kind)], names=["id", "code"]).slice(1)
    assert fetch(codes, [batch.slice(0, 3), batch.slice(3)]) == [3, len(CODES)]
    return codes


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_codes_come_back_in_any_order(tmp_path: Path, kind: pa.DataType) -> None:
    """Neighbours and others, the same one twice, and none."""
    with closing(fetched(tmp_path, kind)) as codes:
        for order in (CODES, CODES[::-1], (CODES[0], CODES[0], CODES[4], CODES[5]), (b"",), ()):
            numbers = codes.numbers(pa.array([sha256(code) for code in order], pa.large_string()))
            assert codes.column(numbers).to_pylist() == list(order)


def test_codes_are_numbered_by_their_lowest_ids(tmp_path: Path) -> None:
    """One hash is one code, whatever order its ids come in; what the export does not need has no number."""
    with closing(wanted(tmp_path, (b"c", b"a", b"b", b"a"), (9, 8, 3, 2))) as codes:
        assert codes.hashes.to_pylist() == [sha256(code) for code in (b"a", b"b", b"c")]
        assert codes.numbers(pa.array([sha256(b"c"), "0" * 64], pa.large_string())).tolist() == [2, -1]
        batch = pa.record_batch([pa.array([2, 3, 9], pa.int32()), pa.array([b"a", b"b", b"c"])], names=["id", "code"])
        assert fetch(codes, [batch]) == [3]
        assert codes.column(np.array([2, 0])).to_pylist() == [b"c", b"a"]


def test_encodings_and_blank_codes_are_noted(tmp_path: Path) -> None:
    """Of a batch in which some are no text, and of one in which all are."""
    with closing(fetched(tmp_path, pa.binary())) as codes:
        everything = np.arange(len(CODES))
        assert codes.encodings(everything).to_pylist() == [
            *(PLAIN, PLAIN, INVALID, PLAIN),
            *(PLAIN, WITH_NUL, PLAIN, PLAIN),
        ]
        assert codes.text(2) == b"x = '\xef\xbf\xbd'\n"
        blank = [code for number, code in enumerate(CODES) if "code_blank" in codes.flags(number)]
        assert blank == [b"", b"\t\n "]
        assert np.flatnonzero(codes.is_odd(everything)).tolist() == [1, 2, 3, 5]
    texts = (b"\n", b"\x0b#", b"", b"#")
    with closing(wanted(tmp_path, texts, range(4))) as codes:
        fetch(
            codes,
            [pa.record_batch([pa.array(range(4), pa.int32()), pa.array(texts, pa.binary())], names=["id", "code"])],
        )
        assert [bool(codes.flags(number)) for number in range(4)] == [True, False, True, False]


def test_a_code_that_is_another_than_its_hash_says_is_refused(tmp_path: Path) -> None:
    """And one that does not come, alone or between others."""
    with closing(wanted(tmp_path, (b"a", b"b", b"c"), (7, 8, 9))) as codes:
        batch = pa.record_batch([pa.array([7, 8, 9], pa.int32()), pa.array([b"a", b"x", b"c"])], names=["id", "code"])
        with pytest.raises(DataError, match="code 8 does not have the hash"):
            fetch(codes, [batch])
        with pytest.raises(DataError, match="code 7 is missing"):
            fetch(codes, [])
        with pytest.raises(DataError, match="code 8 is missing"):
            fetch(codes, [batch.take(pa.array([0, 2]))])


def test_an_export_starts_without_what_it_does_not_use() -> None:
    """Neither pandas nor the format of tasks is loaded; pandas is still there for who asks for it.

    The writers of parquet files take memory where the export gives it back.
    """
    program = (
        "import sys\n"
        "from runner.data import without_pandas\n"
        "without_pandas()\n"
        "import runner.data.export, pyarrow as pa\n"
        "table = pa.Table.from_pydict({'a': [1, None]})\n"
        "print(sorted({'pandas', 'pydantic', 'runner.task_format'} & sys.modules.keys()))\n"
        "print(table.to_pandas()['a'].tolist(), '_Hidden' in repr(sys.meta_path))\n"
        "print(pa.default_memory_pool().backend_name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == ["[]", "[1.0, nan] False", "system"]
