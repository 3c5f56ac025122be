"""Compares an interface with its fixture, `tests/fixtures/interfaces/NAME.txt`: one sorted line per item."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

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
