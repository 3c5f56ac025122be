"""JSON lines: the one place that reads and writes them. A line is an object, UTF-8, with finite numbers only.

Python's own reader takes NaN, Infinity and 1e400 for numbers, which other readers refuse, and which a mean or a
training run passes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runner.base.errors import DataError

Row = dict[str, Any]
#: Objects and lists within each other, far fewer than Python's functions may call each other.
_MOST_NESTED: Final = 100


def numbered(file: Path) -> Iterator[tuple[int, int, Row]]:
    """The number of each line of a file, where it begins, and its row.

    Raises:
        DataError: the file cannot be read, or a line is no JSON object; the line is named.
    """
    try:
        with file.open("rb") as lines:
            start = 0
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, start, parsed(line.decode("utf-8"), where=f"{file}, line {number}")
                start += len(line)
    except FileNotFoundError:
        raise DataError(f"there is no {file}; run the step that writes it first") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is no JSONL file: it has bytes that are no UTF-8") from error
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error


def require_writable(file: Path) -> None:
    """Make sure that a name is free, or that of a regular file: a device or a pipe would be replaced, or never end.

    Raises:
        DataError: it is that of something else.
    """
    if file.exists() and not file.is_file():
        raise DataError(f"cannot write {file}: expected the name of a file, found another kind")


def parsed(line: str, *, where: str) -> Row:
    """A line as a row; a byte order mark before it is no part of it.

    Raises:
        DataError: it is no JSON object.
    """
    line = line.removeprefix("\ufeff")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: expected a JSON object, found {line[:60].strip()!r} ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, found {line[:60].strip()!r}")
    if _is_deep(row):
        raise DataError(f"{where}: objects and lists are nested more than {_MOST_NESTED} deep")
    return row


def _is_deep(row: Row) -> bool:
    level: list[Any] = [row]
    for _ in range(_MOST_NESTED):
        level = [
            part
            for value in level
            for part in (value.values() if isinstance(value, dict) else value)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line. Equal rows give equal lines.

    Raises:
        DataError: a number is not finite; its column is named.
    """
    require_finite(row, where="a row to write")
    line = json.dumps(row, ensure_ascii=False, separators=(", ", ": "), default=str) + "\n"
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        # Half a character, which JSON can say and UTF-8 cannot.
        return json.dumps(row, separators=(", ", ": "), default=str) + "\n"
    return line


def require_finite(row: Mapping[str, Any], *, where: str) -> None:
    """Make sure that all numbers of a row are finite.

    Raises:
        DataError: one is not; its column is named.
    """
    waiting: list[tuple[str, object]] = list(row.items())
    while waiting:
        column, value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise DataError(f"{where}: {column} is {value}, expected a finite number, or null")
        if isinstance(value, Mapping):
            waiting += [(f"{column}.{name}", part) for name, part in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{column}[]", part) for part in value]


def without_infinite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with null in the place of every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: without_infinite(part) for name, part in value.items()}
    return [without_infinite(part) for part in value] if isinstance(value, list | tuple) else value
