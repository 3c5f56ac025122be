"""The form of task errors: one line per problem, `<file>: <key>: found …, expected …`.

Turns pydantic's errors into such lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from runner.base.errors import TaskError
from runner.base.expectations import expectation
from runner.task_format.yamlfile import Unclear

#: The most problems that are listed. The first ones usually explain the rest.
_MAX_LISTED = 10
_MAX_FOUND_CHARS = 80

_Record = TypeVar("_Record")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def problem(where: str, key: str, actual: str, expected: str) -> str:
    """One line of a task error. `found` is text for the message (see `shown`)."""
    place = f"{where}: {key}" if key else where
    return f"{place}: found {actual}, expected {expected}"


def shown(value: object) -> str:
    """A value for an error message: its repr, cut to a readable length."""
    try:
        text = repr(value)
    except ValueError:
        # A number in base 16 may have more digits than Python writes.
        text = "a number of thousands of digits"
    return text if len(text) <= _MAX_FOUND_CHARS else f"{text[:_MAX_FOUND_CHARS]}…"


def nearest(name: str, choices: Iterable[str]) -> str:
    """`one of a, b, c`, and the one that is most similar to `name`, if any is."""
    names = tuple(choices)
    close = difflib.get_close_matches(name.lower(), [choice.lower() for choice in names], n=1)
    listed = f"one of {', '.join(names)}"
    if not close:
        return listed
    match = next(choice for choice in names if choice.lower() == close[0])
    return f"{listed} (did you mean {match!r}?)"


class _Problems(TaskError):
    """Several lines; the message lists the first ten."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        more = [f"… and {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
        super().__init__("\n".join([*lines[:_MAX_LISTED], *more]))


def refuse(lines: Iterable[str]) -> NoReturn:
    """Raise all problems of a task.

    Raises:
        TaskError: always.
    """
    raise _Problems(tuple(lines))


def lines_of(error: TaskError) -> Sequence[str]:
    """The problems that an error names, all of them."""
    return error.lines if isinstance(error, _Problems) else (str(error),)


def validate(model: type[_Record], value: object, *, where: str, prefix: str = "") -> _Record:
    """Validate a parsed document.

    Args:
        model: a pydantic model, or a dataclass whose annotations say what its fields may hold.
        value: the parsed YAML or JSON.
        where: the file (or row) for messages.
        prefix: the key of `value` in that file.

    Raises:
        TaskError: one line per problem.
    """
    try:
        record: _Record = _adapter(model).validate_python(value)
    except ValidationError as error:
        refuse(_line(details, model, where, prefix) for details in error.errors(include_url=False))
    return record


def _line(details: ErrorDetails, model: type, where: str, prefix: str) -> str:
    # "[key]" marks an error of a mapping's key, not of its value.
    location = [part for part in details["loc"] if part != "[key]"]
    # Such as `tests[2].size`.
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    key = f"{prefix}{''.join(parts)}".removeprefix(".")
    kind = details["type"]
    if kind == "missing":
        return problem(where, key, "nothing", expectation(details))
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        unknown = str(location[-1])
        return problem(where, key, "an unknown key", nearest(unknown, _keys(model, location[:-1])))
    expected = expectation(details)
    if isinstance(details["input"], Unclear):
        expected += f" (YAML here takes {Unclear.expected})"
    return problem(where, key, shown(details["input"]), expected)


def _keys(model: type, location: Iterable[str | int]) -> tuple[str, ...]:
    """The keys of the record at a location."""
    keys = _fields(model)
    for part in location:
        if part in keys:
            keys = _inner_fields(keys[str(part)]) or keys
    return tuple(keys)


def _fields(model: object) -> Mapping[str, object]:
    """Name of a record's field -> its annotation; none of what is no record."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    if isinstance(model, type) and is_dataclass(model):
        hints = get_type_hints(model)
        return {field.name: hints[field.name] for field in fields(model)}
    return {}


def _inner_fields(annotation: object) -> Mapping[str, object]:
    """The fields of the record inside `Record`, `tuple[Record, ...]`, `Mapping[str, Record]` or `Record | None`."""
    inner = map(_inner_fields, get_args(annotation))
    return _fields(annotation) or next(filter(None, inner), {})
