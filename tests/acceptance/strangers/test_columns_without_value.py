"""Data sets whose files lack values, one by one: each loads beside one that has them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.base.errors import DataError
from runner.extras.trainers.client import Result
from runner.extras.trainers.client.results_file import ResultsFile, read_rows
from runner.extras.trainers.kernelbook import upload
from runner.extras.trainers.kernelbook.rows import read, written

EVALUATION = Path(__file__).parent / "cases" / "columns_without_value" / "evaluation.json"
ROW: dict[str, Any] = json.loads(EVALUATION.read_text(encoding="utf-8"))
Place = tuple[str | int, ...]


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """Generate every place of a row, nested ones too."""
    if place:
        yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def changed(place: Place, value: object) -> dict[str, Any]:
    """The row with another value at a place."""
    row = copy.deepcopy(ROW)
    holder: Any = row
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return row


def at(place: Place) -> Any:  # noqa: ANN401 - JSON
    """What stands at a place of the row."""
    value: Any = ROW
    for key in place:
        value = value[key]
    return value


def made(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The parquet file of a data set of rows."""
    folder.mkdir(exist_ok=True)
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    upload.run(upload.TARGETS[2], source, to=folder, repository=None, token=None)
    return folder / "synthetic/data/train-00000-of-00001.parquet"


def types(kind: pa.DataType | pa.Schema) -> Iterator[pa.DataType]:
    """Generate a type and all within it."""
    if isinstance(kind, pa.DataType):
        yield kind
    if isinstance(kind, pa.Schema | pa.StructType):
        for field in kind:
            yield from types(field.type)
    if isinstance(kind, pa.ListType):
        yield from types(kind.value_type)


def test_a_value_that_a_whole_file_lacks_changes_no_type(tmp_path: Path) -> None:
    """Null at each place; and none of the types is that of nothing, also where fields are gone with their object."""
    whole = pq.read_schema(made(tmp_path, [ROW]))
    for place in places(ROW):
        schema = pq.read_schema(made(tmp_path, [changed(place, None)] * 2))
        assert pa.null() not in types(schema), place
        if not isinstance(at(place), dict | list):
            assert schema == whole, place
    for place in places(ROW):
        if isinstance(at(place), dict | list):
            assert pa.null() not in types(pq.read_schema(made(tmp_path, [changed(place, type(at(place))())])))


def test_whole_numbers_are_numbers_where_others_have_fractions(tmp_path: Path) -> None:
    """One file may have a reward of 1 alone; one with more digits than a fraction holds is refused, in a sentence."""
    whole = pq.read_schema(made(tmp_path, [ROW]))
    for place in places(ROW):
        if isinstance(at(place), float):
            assert pq.read_schema(made(tmp_path, [changed(place, 1)])) == whole, place
    with pytest.raises(DataError, match="a value cannot be stored"):
        made(tmp_path, [{"reward": 2**60 + 1}])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, "1e400"], ids=str)
def test_a_number_that_is_not_finite_is_refused_by_line(tmp_path: Path, number: float | str) -> None:
    """Wherever it stands, with its column; nothing is written."""
    source = tmp_path / "rows.jsonl"
    for place in places(ROW):
        if isinstance(at(place), float):
            line = json.dumps(changed(place, "@" if isinstance(number, str) else number)).replace('"@"', str(number))
            source.write_text(f"{json.dumps(ROW)}\n\n{line}\n")
            with pytest.raises(DataError, match=rf"rows\.jsonl, line 3: {place[0]} is (nan|-?inf), expected a finite"):
                upload.run(upload.TARGETS[0], source, to=tmp_path / "sets", repository=None, token=None)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_values_of_several_kinds_are_named_with_column_and_line(tmp_path: Path) -> None:
    """At each place, each other kind."""
    source = tmp_path / "rows.jsonl"
    for place in places(ROW):
        for value in ("text", True, 5, 0.5, {"a": 1}, ["a"]):
            if type(value) is type(at(place)) or {type(value), type(at(place))} == {int, float}:
                continue
            source.write_text("".join(json.dumps(row) + "\n" for row in (ROW, ROW, changed(place, value))))
            with pytest.raises(DataError, match=rf"rows\.jsonl, line 3: {place[0]} cannot be stored"):
                upload.look(source)


@pytest.mark.parametrize("value", ["0.9", 2**64, ["\ud83d"], {"\ud83d": 1}, [1, "a"]], ids=ascii)
def test_values_that_no_file_holds_are_named(tmp_path: Path, value: object) -> None:
    """With column and line; also text for a number where no row has one."""
    with pytest.raises(DataError, match="line 1: reward cannot be stored"):
        made(tmp_path, [{"reward": value}])


def test_steps_read_no_number_that_is_not_finite(tmp_path: Path) -> None:
    """It is null for them, in lines and in parquet; half a character of a row is written as it was read."""
    row = {"reward": math.nan, "a": [{"b": math.inf}], "c": "\ud83d"}
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(f"\ufeff{json.dumps(row)}\n", encoding="utf-8")
    pq.write_table(pa.table({"reward": [math.nan], "a": [[{"b": math.inf}]]}), tmp_path / "rows.parquet")
    (found,) = read(source)
    assert found == {"reward": None, "a": [{"b": None}], "c": "\ud83d"}
    assert list(read(tmp_path / "rows.parquet")) == [{"reward": None, "a": [{"b": None}]}]
    with written(output) as write:
        write(found)
    assert list(read(output)) == [found]
    with (
        pytest.raises(DataError, match=r"a row to write: a\[\]\.b is inf, expected a finite"),
        written(output) as write,
    ):
        write(row)


@pytest.mark.parametrize("name", ["speedup", "speedup_low"])
def test_no_reward_is_infinite(tmp_path: Path, name: str) -> None:
    """A result with such a number has no reward, and a file of results with one is refused by line."""
    facts = {"verdict": "accepted", "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, name: math.inf}
    result = Result(key="k", state="done", verdict="accepted", facts=facts)
    assert result.reward("kernelbook@1") == (None if name == "speedup" else 2.0)
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps({"key": "k", "scope": "s", "facts": facts}) + "\n")
    said = rf"results\.jsonl: it is no file of results: line 1: facts\.{name} is inf, expected a finite number"
    with pytest.raises(DataError, match=said):
        read_rows(file)
    with pytest.raises(DataError, match=said):
        ResultsFile(file, "s")
