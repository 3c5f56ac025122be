"""Codes that are put aside and read again."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from runner.data.code import INVALID, PLAIN, WITH_NUL, Codes
from runner.errors import DataError

CODES = (b"# first\n", b"", b"x = '\xff'\n", b"\t\n ", b" # not blank", b"a\0b", "# ü\n".encode(), b"# last")


def sha256(code: bytes) -> str:
    """The hash of a code."""
    return hashlib.sha256(code).hexdigest()


def fetched(folder: Path, kind: pa.DataType) -> Codes:
    """All of them, fetched in one batch that does not begin at its first value."""
    codes = Codes(folder)
    for number, code in enumerate(CODES, 1):
        codes.want(sha256(code), number, len(code))
    ids = pa.array([0, *range(1, len(CODES) + 1)], pa.int32())
    batch = pa.record_batch([ids, pa.array([b"another", *CODES], kind)], names=["id", "code"]).slice(1)
    codes.fetch([sha256(code) for code in CODES], lambda _ids: [batch], lambda _stage, _done, _total: None)
    return codes


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_codes_come_back_in_any_order(tmp_path: Path, kind: pa.DataType) -> None:
    """Neighbours and others, the same one twice, and none."""
    with closing(fetched(tmp_path, kind)) as codes:
        for order in (CODES, CODES[::-1], (CODES[0], CODES[0], CODES[4], CODES[5]), (b"",), ()):
            assert codes.column([sha256(code) for code in order]).to_pylist() == list(order)


def test_encodings_and_blank_codes_are_noted(tmp_path: Path) -> None:
    """Of a batch in which some are no text, and of one in which all are."""
    with closing(fetched(tmp_path, pa.binary())) as codes:
        assert [codes.encoding(sha256(code)) for code in CODES] == [
            *(PLAIN, PLAIN, INVALID, PLAIN),
            *(PLAIN, WITH_NUL, PLAIN, PLAIN),
        ]
        blank = [code for code in CODES if "code_blank" in codes.flags(sha256(code))]
        assert blank == [b"", b"\t\n "]
    with closing(Codes(tmp_path)) as codes:
        texts = (b"\n", b"\x0b#", b"", b"#")
        for number, code in enumerate(texts):
            codes.want(sha256(code), number, len(code))
        batch = pa.record_batch([pa.array(range(4), pa.int32()), pa.array(texts, pa.binary())], names=["id", "code"])
        codes.fetch([sha256(code) for code in texts], lambda _ids: [batch], lambda _stage, _done, _total: None)
        assert [bool(codes.flags(sha256(code))) for code in texts] == [True, False, True, False]


def test_a_code_that_is_another_than_its_hash_says_is_refused(tmp_path: Path) -> None:
    """And one that does not come."""
    with closing(Codes(tmp_path)) as codes:
        codes.want(sha256(b"a"), 7, 1)
        batch = pa.record_batch([pa.array([7], pa.int32()), pa.array([b"b"])], names=["id", "code"])
        with pytest.raises(DataError, match="code 7 does not have the hash"):
            codes.fetch([sha256(b"a")], lambda _ids: [batch], lambda _stage, _done, _total: None)
        with pytest.raises(DataError, match="code 7 is missing"):
            codes.fetch([sha256(b"a")], lambda _ids: [], lambda _stage, _done, _total: None)


def test_an_export_starts_without_what_it_does_not_use() -> None:
    """Neither pandas nor the format of tasks is loaded; pandas is still there for who asks for it."""
    program = (
        "import sys\n"
        "from runner.data import without_pandas\n"
        "without_pandas()\n"
        "import runner.data.export, pyarrow as pa\n"
        "table = pa.Table.from_pydict({'a': [1, None]})\n"
        "print(sorted({'pandas', 'pydantic', 'runner.task_format'} & sys.modules.keys()))\n"
        "print(table.to_pandas()['a'].tolist(), '_Hidden' in repr(sys.meta_path))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == ["[]", "[1.0, nan] False"]
