"""The types of a data set's columns, and its parquet files. Nothing here guesses from a part of the rows.

The columns that the pipeline writes have stated types. Of other columns all values are looked at, and a column or field
without any value holds text: a type of nothing loads beside no other file. Where values of a column are of several
kinds, the error names the column and both lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner.base.errors import DataError
from runner.extras.jsonl import Row, require_finite

_TEXT: Final = pa.string()
_NUMBER: Final = pa.float64()
_MESSAGES: Final = pa.list_(
    pa.struct({"role": _TEXT, "content": _TEXT, "reasoning": _TEXT, "reasoning_content": _TEXT})
)
_LICENCES: Final = pa.list_(_TEXT)
_MODULE: Final = {"python_code": _TEXT, "triton_code": _TEXT, "uuid": pa.int64(), "licenses": _LICENCES}
#: The type of a column that has no value in a file. Numbers are always of their type: one file has whole ones only.
STATED: Final[Mapping[str, pa.DataType]] = {
    "example_id": pa.int64(),
    "prompt": _MESSAGES,
    "completion": _MESSAGES,
    "reward": _NUMBER,
    "speedup_reward": _NUMBER,
    "generation_ms": _NUMBER,
    "scoring_ms": _NUMBER,
    "total_ms": _NUMBER,
    "speedup": _NUMBER,
    "speedup_low": _NUMBER,
    "speedup_high": _NUMBER,
    "speedup_device": _NUMBER,
    "num_turns": pa.int64(),
    "info": pa.struct({**_MODULE, "module_name": _TEXT, "repo_name": _TEXT}),
    **_MODULE,
}
#: Kinds of values, and their types in parquet. Objects and lists have those of their parts.
_TYPES: Final = {"text": _TEXT, "true or false": pa.bool_(), "a whole number": pa.int64(), "a number": _NUMBER}
_NUMBERS: Final = {"a whole number", "a number"}
_INT64: Final = range(-(2**63), 2**63)


class Columns:
    """The columns of a file's rows, which are added one by one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._root = _Kind(pa.struct(list(STATED.items())))

    def add(self, row: Row, line: int) -> None:
        """Take a row.

        Raises:
            DataError: a value cannot be stored, or is of another kind than those before; column and line are named.
        """
        require_finite(row, where=f"{self._file}, line {line}")
        for name, value in row.items():
            self._root.field(name).add(value, _Place(file=self._file, line=line, column=name))

    def schema(self) -> pa.Schema:
        """The schema that holds all rows.

        Raises:
            DataError: values of a column are no numbers, as is stated for it.
        """
        for name, kind in self._root.fields.items():
            word = next(iter(kind.lines), None)
            if kind.stated == _NUMBER and word not in (None, *_NUMBERS):
                raise DataError(f"{self._file}, line {kind.lines[str(word)]}: {name} is {word}, expected a number")
        return pa.schema([pa.field(name, kind.type) for name, kind in self._root.fields.items()])

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """Some of the rows as a table."""
        return pa.Table.from_pylist([self._root.fit(row) for row in rows], schema=self.schema())


def write(file: Path, columns: Columns, batches: Iterable[Iterable[Row]]) -> None:
    """Write rows that were added to the columns as a parquet file."""
    with pq.ParquetWriter(file, columns.schema(), compression="zstd") as parquet:
        for batch in batches:
            parquet.write_table(columns.table(batch))


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a value stands."""

    file: Path
    line: int
    column: str

    def within(self, part: str) -> _Place:
        return replace(self, column=f"{self.column}{part}")

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.column}"


class _Kind:
    """What the values of one column are: one of the kinds, or nothing at all."""

    def __init__(self, stated: pa.DataType | None) -> None:
        self.stated = stated
        #: Kind -> the first line that has it.
        self.lines: dict[str, int] = {}
        self.fields: dict[str, _Kind] = {}
        self._element: _Kind | None = None

    def field(self, name: str) -> _Kind:
        """Of an object's value."""
        if name not in self.fields:
            fields = self.stated if isinstance(self.stated, pa.StructType) else ()
            self.fields[name] = _Kind(next((field.type for field in fields if field.name == name), None))
        return self.fields[name]

    def add(self, value: Any, place: _Place) -> None:  # noqa: ANN401 - JSON
        kind = _kind_of(value)
        if kind is None:
            return
        if kind not in self.lines:
            self.lines[kind] = place.line
            self._require_one_kind(place)
        if isinstance(value, str):
            _require_utf8(value, place)
        elif isinstance(value, int) and value not in _INT64:
            raise DataError(f"{place} has more than 64 bits, expected a shorter number, or text")
        elif isinstance(value, dict):
            for name, part in value.items():
                _require_utf8(name, place)
                self.field(name).add(part, place.within(f".{name}"))
        elif isinstance(value, list):
            if self._element is None:
                self._element = _Kind(self.stated.value_type if isinstance(self.stated, pa.ListType) else None)
            for part in value:
                self._element.add(part, place.within("[]"))

    def _require_one_kind(self, place: _Place) -> None:
        if len(self.lines) > 1 and not self.lines.keys() <= _NUMBERS:
            (one, first), *_, (other, last) = self.lines.items()
            raise DataError(
                f"{place.file}: the rows have different schemas: column {place.column} is {other} in line {last}, and "
                f"{one} in line {first}; expected one kind in all rows"
            )

    @property
    def _is_number(self) -> bool:
        return "a number" in self.lines or ("a whole number" in self.lines and self.stated == _NUMBER)

    @property
    def type(self) -> pa.DataType:
        """Of the column's values; the stated one where there are none."""
        if self.fields:
            return pa.struct([pa.field(name, field.type) for name, field in self.fields.items()])
        if self._element is not None:
            return pa.list_(self._element.type)
        if self._is_number:
            return _NUMBER
        # An object without any key is nothing, too.
        return _TYPES.get(next(iter(self.lines), ""), _TEXT if self.stated is None else self.stated)

    def fit(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """A value as its column holds it; parquet has no object without a key."""
        if isinstance(value, dict):
            return {name: self.fields[name].fit(part) for name, part in value.items()} if self.fields else None
        if isinstance(value, list) and self._element is not None:
            return [self._element.fit(part) for part in value]
        # Arrow rounds no whole number of its own accord.
        return float(value) if self._is_number and value is not None else value


def _kind_of(value: object) -> str | None:
    """What a value is called in messages; None: null."""
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "text"), (int, "a whole number"), (float, "a number"), (dict, "an object"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), None)


def _require_utf8(text: str, place: _Place) -> None:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise DataError(f"{place} has half a character, which no UTF-8 can hold; expected whole ones")
