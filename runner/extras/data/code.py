"""Submitted code: read from the database by id, checked against its hash, and written to `code/part-*.parquet`.

The parts hold the codes by their lowest ids. New submissions have higher ids, so only the last part grows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from runner.base.errors import DataError
from runner.extras.data import Progress
from runner.extras.data.snapshot import Scope, Snapshot
from runner.extras.data.tables import CODE, CODE_KEYS, GROUP_BYTES, Writer, groups, table

#: Bytes of code in a part, uncompressed.
PART_BYTES: Final = 128 * 2**20

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


def faults_of(code: bytes, encoding: str) -> Mapping[str, str]:
    """The checks that a code fails, each with what is wrong."""
    faults = {}
    if not code or code.isspace():
        faults["code_blank"] = f"has {len(code)} bytes"
    if encoding != PLAIN:
        faults["code_encoding"] = "is not UTF-8" if encoding == INVALID else "has a NUL"
    return faults


def as_text(code: bytes, encoding: str) -> bytes:
    """The code as valid UTF-8: what is not becomes U+FFFD."""
    return code.decode("utf-8", "replace").encode("utf-8") if encoding == INVALID else code


class Codes:
    """The codes of an export."""

    def __init__(self, database: Snapshot) -> None:
        self._database = database
        self.count = 0
        #: SHA-256 -> encoding of code that fails some checks, and which; all other code is plain text.
        self.odd: dict[str, tuple[str, Sequence[str]]] = {}

    def read(self, ids: list[int], hashes: list[str]) -> list[bytes]:
        """The codes of these ids.

        Raises:
            DataError: one is gone, or does not have its hash.
        """
        codes = self._database.code(sorted(set(ids)))
        for code_id, sha256 in zip(ids, hashes, strict=True):
            if code_id not in codes:
                raise DataError(f"code {code_id} is missing; nothing was exported")
            if hashlib.sha256(codes[code_id]).hexdigest() != sha256:
                raise DataError(f"code {code_id} does not have the hash that the database gives; nothing was exported")
        return [codes[code_id] for code_id in ids]

    def write_parts(self, folder: Path, scope: Scope, progress: Progress) -> Mapping[str, int]:
        """Write all parts, and note which codes are odd; path -> rows of each part. There is one part at least.

        Raises:
            DataError: the code of a submission is gone, or does not have its hash.
        """
        (folder / "code").mkdir()
        rows: dict[str, int] = {}
        pending = groups(
            (table(CODE_KEYS, lines) for lines in self._database.stream("codes", scope)), code_bytes=GROUP_BYTES
        )
        group = next(pending, None)
        while group is not None or not rows:
            name = f"code/part-{len(rows):05}.parquet"
            part_bytes = 0
            with Writer(folder / name, CODE) as part:
                while group is not None and part_bytes < PART_BYTES:
                    part.group(self._checked(group))
                    part_bytes += sum(group.column("code_bytes").to_pylist())
                    progress("code", self.count, 0)
                    group = next(pending, None)
            rows[name] = part.rows
        return rows

    def _checked(self, group: pa.Table) -> pa.Table:
        ids, hashes, sizes, submissions = (column.to_pylist() for column in group.columns)
        if None in hashes:
            lost = hashes.index(None)
            raise DataError(f"code {ids[lost]} of submission {submissions[lost]} is missing; nothing was exported")
        codes = self.read(ids, hashes)
        encodings = list(map(encoding_of, codes))
        for sha256, code, encoding in zip(hashes, codes, encodings, strict=True):
            if faults := faults_of(code, encoding):
                self.odd[sha256] = encoding, sorted(faults)
        self.count += len(codes)
        return table(CODE, list(zip(hashes, sizes, encodings, codes, strict=True)))
