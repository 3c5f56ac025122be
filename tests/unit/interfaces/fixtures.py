"""Compares an interface with its fixture, `tests/fixtures/interfaces/NAME.txt`: one sorted line per item."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "tests" / "fixtures" / "interfaces"
#: If this variable is set, the fixtures are written and not compared.
WRITE: Final = "KERNEL_RUNNER_TEST_WRITE_INTERFACES"


def compare(name: str, found: Iterable[str]) -> None:
    """Fail if the interface is not what its fixture says."""
    path = FOLDER / f"{name}.txt"
    lines = set(found)
    assert lines, f"nothing was found for {path.name}"
    if os.environ.get(WRITE):
        path.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
        return
    known = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
    if lines != known:
        pytest.fail(difference(path.name, known, lines), pytrace=False)


def difference(name: str, known: set[str], found: set[str]) -> str:
    """What changed, and what to do if the change is wanted."""
    return "\n".join(
        [
            f"An interface for programs outside this project changed (tests/fixtures/interfaces/{name}):",
            *(f"  missing: {line}" for line in sorted(known - found)),
            *(f"  added:   {line}" for line in sorted(found - known)),
            "If you want the change, run `python -m tests.unit.interfaces` and name it in CHANGELOG.md.",
        ]
    )


def keys(value: object, path: str = "") -> Iterator[str]:
    """The paths of all keys of a JSON value; the items of a list are `[]`, a number in a key is `N`."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from keys(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for item in value:
            yield from keys(item, f"{path}[]")
    elif path:
        yield re.sub(r"\.\d+(?=\.|$)", ".N", path)


def schema_lines(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a JSON schema with its type, its bounds, and whether it is required or has a default."""
    yield from _object_lines(schema, schema.get("$defs", {}), prefix)


def _object_lines(schema: Mapping[str, Any], defined: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, entry in schema.get("properties", {}).items():
        if key in schema.get("required", ()):
            rest = " required"
        else:
            rest = f" = {entry['default']!r}" if "default" in entry else ""
        yield f"{path}{key}: {_type(entry, defined)}{rest}"
        for suffix, inner in _objects(entry, defined):
            yield from _object_lines(inner, defined, f"{path}{key}{suffix}.")


def _objects(entry: Mapping[str, Any], defined: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects within a value, with what stands between its key and theirs."""
    entry = _resolved(entry, defined)
    if "properties" in entry:
        yield "", entry
    for choice in (*entry.get("anyOf", ()), *entry.get("allOf", ())):
        yield from _objects(choice, defined)
    for suffix, key in (("[]", "items"), (".*", "additionalProperties")):
        if isinstance(entry.get(key), Mapping):
            yield from ((f"{suffix}{more}", inner) for more, inner in _objects(entry[key], defined))


def _type(entry: Mapping[str, Any], defined: Mapping[str, Any]) -> str:
    """A value's type in a few words."""
    entry = _resolved(entry, defined)
    if choices := [*entry.get("anyOf", ()), *entry.get("allOf", ())]:
        return " or ".join(_type(choice, defined) for choice in choices)
    if "enum" in entry or "const" in entry:
        return "|".join(str(value) for value in entry.get("enum", [entry.get("const")]))
    word = str(entry.get("format", entry.get("type", "any")))
    if isinstance(entry.get("items"), Mapping):
        word += f" of {_type(entry['items'], defined)}"
    if isinstance(entry.get("additionalProperties"), Mapping):
        word += f" of {_type(entry['additionalProperties'], defined)}"
    if "propertyNames" in entry:
        word += f", keys {_type(entry['propertyNames'], defined)}"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<", "pattern": "like "}
    bounds = [f"{sign}{entry[name]}" for name, sign in signs.items() if name in entry]
    return f"{word} ({', '.join(bounds)})" if bounds else word


def _resolved(entry: Mapping[str, Any], defined: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = entry.get("$ref")
    return entry if reference is None else {**defined[reference.rpartition("/")[2]], **entry, "$ref": None}
