"""Reads KernelBot's competition files: names of leaderboards, each with the folder of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from runner.base.dates import EXPECTED, DateError, read_date
from runner.base.errors import TaskError
from runner.base.marks import visible
from runner.task_format.load import TASK_FILE, load_folder, repository_of
from runner.task_format.model import TaskFolder, Text
from runner.task_format.problems import lines_of, problem, refuse, validate
from runner.task_format.schema import Document, Texts
from runner.task_format.yamlfile import MAX_YAML_BYTES, parse_yaml


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One entry of a competition file, with its task folder loaded."""

    name: str
    folder: TaskFolder
    #: None: the file has none. KernelBot then takes a year from now.
    deadline: datetime | None
    #: Empty: those of the task itself.
    gpus: tuple[str, ...]
    #: The folder that was loaded in place of the file's own; None: that.
    judged: Path | None = None


def _deadline(value: object) -> object:
    if value is None or value == "":
        return None
    try:
        return read_date(str(value), zone=UTC)
    except DateError:
        raise PydanticCustomError("date", "{expected}", {"expected": EXPECTED}) from None


class ProblemDocument(Document):
    """One entry of a competition file."""

    name: Text
    directory: Text
    deadline: Annotated[datetime | None, BeforeValidator(_deadline)] = None
    gpus: Texts


class CompetitionDocument(Document):
    """A competition file."""

    name: Text
    description: str = ""
    #: Unused, as in KernelBot.
    deadline: Any = None
    problems: Annotated[list[ProblemDocument], Field(min_length=1)]


def load_competition(path: Path, *, judged: Path | None = None) -> Sequence[Problem]:
    """Load the problems of a KernelBot competition file with their task folders.

    A board that a competition file in the folder `judged` has, too, is loaded from the task folder of that file.

    Raises:
        TaskError: one line per problem.
    """
    where = str(path)
    document = _competition(path)
    ours = {} if judged is None else _folders(judged)
    names: set[str] = set()
    problems: list[Problem] = []
    lines: list[str] = []
    for index, entry in enumerate(document.problems):
        key = f"problems[{index}]"
        if entry.name in names:
            lines.append(problem(where, f"{key}.name", f"{entry.name!r} a second time", "different names"))
        names.add(entry.name)
        try:
            if entry.name in ours:
                folder = load_folder(ours[entry.name], name=entry.name)
            else:
                folder = _problem_folder(path, entry, f"{where}: {key}.directory")
        except TaskError as error:
            lines += lines_of(error)
            continue
        problems.append(
            Problem(
                name=entry.name,
                folder=folder,
                deadline=entry.deadline,
                gpus=tuple(entry.gpus),
                judged=ours.get(entry.name),
            )
        )
    if lines:
        refuse(lines)
    return problems


def _competition(path: Path) -> CompetitionDocument:
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_YAML_BYTES + 1)
    except OSError as error:
        raise TaskError(f"{where}: found an unreadable file ({error.strerror}), expected a competition file") from error
    return validate(CompetitionDocument, parse_yaml(data, where), where=where)


def _folders(competitions: Path) -> Mapping[str, Path]:
    """The boards of a folder's competition files, and their task folders."""
    return {
        entry.name: competitions / entry.directory
        for path in visible(competitions, ".yaml")
        for entry in _competition(path).problems
    }


def _problem_folder(competition: Path, entry: ProblemDocument, place: str) -> TaskFolder:
    directory = competition.parent / entry.directory
    root = repository_of(competition.resolve().parent)
    try:
        inside, there = directory.resolve().is_relative_to(root), directory.is_dir()
    except (OSError, ValueError, RuntimeError):
        # Too long, or no path, or (Python before 3.13) a loop of links.
        inside, there = True, False
    if not inside:
        raise TaskError(f"{place}: found {entry.directory!r}, which leaves the repository, expected a folder inside it")
    if not there:
        raise TaskError(f"{place}: found {entry.directory!r}, which is no folder, expected one with a {TASK_FILE}")
    return load_folder(directory, name=entry.name)
