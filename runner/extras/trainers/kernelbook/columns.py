"""The types of a data set's columns. Nothing here guesses from a part of the rows.

The columns that the pipeline writes have stated types. Of other columns all values are looked at, and a column or field
without any value holds text: a type of nothing loads beside no other file. Where values of a column are of several
kinds, the error names the column and the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from runner.base.errors import DataError
from runner.extras.jsonl import Row

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


def table_of(file: Path, rows: Mapping[int, Row]) -> pa.Table:
    """The rows of a file, by line, as a table. All have the same columns.

    Raises:
        DataError: a value cannot be stored, or is of another kind than those before; column and line are named. Or a
            whole number has more digits than a column with fractions holds.
    """
    types: dict[str, pa.DataType] = {}
    for line, row in rows.items():
        for name, value in row.items():
            # Text for a number is an error also where no other row has a number.
            before = types.get(name, _NUMBER if STATED.get(name) == _NUMBER else pa.null())
            try:
                both = [pa.schema({name: type_}) for type_ in (before, pa.array([_storable(value)]).type)]
                types[name] = pa.unify_schemas(both, promote_options="permissive").field(name).type
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                reason = " ".join(str(error).split())
                raise DataError(
                    f"{file}, line {line}: {name} cannot be stored, or not with the rows before: {reason}"
                ) from error
    schema = pa.schema({name: _settled(own, STATED.get(name)) for name, own in types.items()})
    storable = [{name: _storable(value) for name, value in row.items()} for row in rows.values()]
    try:
        return pa.Table.from_pylist(storable, schema=schema)
    except pa.ArrowException as error:
        raise DataError(f"{file}: a value cannot be stored: {' '.join(str(error).split())}") from error


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
