"""The types of a data set's columns, and its parquet files. Nothing here guesses from a part of the rows.

The columns that the pipeline writes have stated types. Of other columns all values are looked at, and a column or field
without any value holds text: a type of nothing loads beside no other file. Where values of a column are of several
kinds, the error names the column and the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class Columns:
    """The columns of a file's rows, which are added one by one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._types: dict[str, pa.DataType] = {}

    def add(self, row: Row, line: int) -> None:
        """Take a row.

        Raises:
            DataError: a value cannot be stored, or is of another kind than those before; column and line are named.
        """
        require_finite(row, where=f"{self._file}, line {line}")
        for name, value in row.items():
            # Text for a number is an error also where no other row has a number.
            before = self._types.get(name, _NUMBER if STATED.get(name) == _NUMBER else pa.null())
            try:
                own = pa.array([_storable(value)]).type
                both = [pa.schema({name: type_}) for type_ in (before, own)]
                self._types[name] = pa.unify_schemas(both, promote_options="permissive").field(name).type
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                reason = " ".join(str(error).split())
                raise DataError(
                    f"{self._file}, line {line}: {name} cannot be stored, or not with the rows before: {reason}"
                ) from error

    def schema(self) -> pa.Schema:
        """The schema that holds all rows."""
        return pa.schema({name: _settled(own, STATED.get(name)) for name, own in self._types.items()})

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """Some of the rows as a table.

        Raises:
            DataError: a whole number has more digits than a column with fractions holds.
        """
        storable = [{name: _storable(value) for name, value in row.items()} for row in rows]
        try:
            return pa.Table.from_pylist(storable, schema=self.schema())
        except pa.ArrowException as error:
            raise DataError(f"{self._file}: a value cannot be stored: {' '.join(str(error).split())}") from error


def write(file: Path, columns: Columns, batches: Iterable[Iterable[Row]]) -> None:
    """Write rows that were added to the columns as a parquet file."""
    with pq.ParquetWriter(file, columns.schema(), compression="zstd") as parquet:
        for batch in batches:
            parquet.write_table(columns.table(batch))


def _storable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with null in the place of objects without any key, which parquet has not."""
    if isinstance(value, dict):
        return {name: _storable(part) for name, part in value.items()} or None
    return [_storable(part) for part in value] if isinstance(value, list) else value


def _settled(own: pa.DataType, stated: pa.DataType | None) -> pa.DataType:
    """A column's type by its values, and where these say nothing the stated one, else text."""
    if pa.types.is_null(own):
        return _TEXT if stated is None else stated
    if pa.types.is_struct(own):
        fields = {field.name: field.type for field in stated} if isinstance(stated, pa.StructType) else {}
        return pa.struct({field.name: _settled(field.type, fields.get(field.name)) for field in own})
    if pa.types.is_list(own):
        return pa.list_(_settled(own.value_type, stated.value_type if isinstance(stated, pa.ListType) else None))
    return own
