"""Reads candidates and references from files: JSON lines, a folder, a checkout of KernelBench.

JSON lines have `reference` and `candidate`, or the names of KernelBook's rows (`python_code`, `triton_code`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runner.base.errors import DataError
from runner.base.marks import ENCODING, visible
from runner.extras.jsonl import parsed
from runner.extras.trainers.client.items import Item

#: KernelBench's name of a candidate's file, and of a problem's.
_SAMPLE: Final = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_PROBLEM: Final = re.compile(r"(\d+)_.*\.py")
#: The first of these keys that a line has counts.
_REFERENCE: Final = ("reference", "python_code", "reference_code", "original_code")
_CANDIDATE: Final = ("candidate", "triton_code", "kernel_code")
_NAME: Final = ("name", "uuid", "example_id", "task_id")
#: The database refuses a call with a longer key, or one with such characters: controls, formats, separators of lines.
_MAX_KEY_CHARS: Final = 255
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One candidate of a source, with what the source calls it."""

    item: Item
    name: str
    level: str | None = None
    problem: int | None = None
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A line or a file that holds no item."""

    name: str
    reason: str


def read(source: Path, candidates: Path | None = None) -> Iterator[Entry | Unreadable]:
    """The entries of a source, in its order.

    A source is a file of JSON lines; a folder with a folder per problem, each with `reference.py` and candidates; or a
    checkout of KernelBench, of which `candidates` is the folder of a run, by default the only one in `runs`.

    Raises:
        DataError: it is none of these.
    """
    if source.is_file():
        return _lines(source)
    problems = next((folder for folder in (source / "KernelBench", source) if (folder / "level1").is_dir()), None)
    if problems is not None:
        return _kernelbench(problems, candidates or _only_run(source))
    if source.is_dir() and _references(source):
        return _folder(source)
    raise DataError(f"{source}: neither a file, nor a folder of problems with reference.py, nor a KernelBench checkout")


def entry_of(row: Mapping[str, Any], name: str) -> Entry | Unreadable:
    """The entry of a JSON object."""
    texts = {}
    for what, keys in (("reference", _REFERENCE), ("candidate", _CANDIDATE)):
        key = next((key for key in keys if isinstance(row.get(key), str)), None)
        if key is None:
            return Unreadable(name=name, reason=f"it has no text {' or '.join(keys)}")
        texts[what] = row[key]
    settings = row.get("settings") or {}
    if not isinstance(settings, Mapping):
        return Unreadable(name=name, reason="its settings are no object")
    key = "" if row.get("key") is None else str(row["key"])
    if len(key) > _MAX_KEY_CHARS:
        return Unreadable(name=name, reason=f"its key has {len(key)} characters, expected at most {_MAX_KEY_CHARS}")
    if any(unicodedata.category(char) in _UNSEEN for char in key):
        return Unreadable(name=name, reason="its key has characters that cannot be seen")
    own = next((str(row[key]) for key in _NAME if row.get(key) is not None), name)
    level = row.get("level", row.get("difficulty"))
    item = Item(
        **texts,
        key=key,
        entry_point=str(row.get("entry_point") or "Model"),
        candidate_entry_point=row.get("candidate_entry_point"),
        settings=settings,
    )
    return Entry(item=item, name=own, level=None if level is None else str(level))


def _lines(path: Path) -> Iterator[Entry | Unreadable]:
    digests: dict[str, str] = {}
    with path.open(encoding=ENCODING, errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            name = f"line {number}"
            try:
                entry = entry_of(parsed(line, where="it is no JSON object"), name)
            except DataError as error:
                yield Unreadable(name=name, reason=str(error))
                continue
            if isinstance(entry, Entry):
                digest = entry.item.digest
                if digests.setdefault(entry.item.key, digest) != digest:
                    entry = Unreadable(name=name, reason="an earlier line has its key and other content")
            yield entry


def _references(source: Path) -> list[Path]:
    return [path for folder in visible(source) if (path := folder / "reference.py").is_file()]


def _folder(source: Path) -> Iterator[Entry | Unreadable]:
    for reference in _references(source):
        for path in visible(reference.parent, ".py"):
            if path != reference:
                yield _pair(reference, path, f"{reference.parent.name}/{path.name}")


def _kernelbench(problems: Path, run: Path) -> Iterator[Entry | Unreadable]:
    references: dict[tuple[int, int], Path] = {}
    for path in problems.glob("level*/*.py"):
        match = _PROBLEM.fullmatch(path.name)
        if match and path.parent.name[5:].isdigit():
            references[int(path.parent.name[5:]), int(match[1])] = path
    samples = [(match, path) for path in run.glob("*.py") if (match := _SAMPLE.fullmatch(path.name))]
    if not samples:
        raise DataError(f"{run}: no file is named like level_1_problem_1_sample_0_kernel.py")
    for match, path in sorted(samples, key=lambda pair: [int(number) for number in pair[0].groups()]):
        level, problem, sample = (int(number) for number in match.groups())
        reference = references.get((level, problem))
        if reference is None:
            yield Unreadable(name=path.name, reason=f"there is no problem {problem} of level {level}")
            continue
        yield _pair(reference, path, path.name, level=str(level), problem=problem, sample=sample)


def _pair(reference: Path, candidate: Path, name: str, **more: Any) -> Entry | Unreadable:  # noqa: ANN401 - fields
    try:
        texts = [path.read_text(encoding=ENCODING) for path in (reference, candidate)]
    except (OSError, UnicodeDecodeError) as error:
        return Unreadable(name=name, reason=f"it cannot be read: {error}")
    return Entry(item=Item(reference=texts[0], candidate=texts[1]), name=name, **more)


def _only_run(source: Path) -> Path:
    runs: Sequence[Path] = [path for path in visible(source / "runs") if path.is_dir()]
    if len(runs) != 1:
        raise DataError(f"{source / 'runs'}: {len(runs)} runs; name the folder with the candidates")
    return runs[0]
