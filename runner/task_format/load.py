"""Reads task folders and archives into records.

Owns which files are read, and in which order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from runner.base.errors import TaskError
from runner.base.marks import ENCODING
from runner.task_format.build import build_task, name_problem
from runner.task_format.model import HARNESS, SUBMISSION, Extra, TaskFolder
from runner.task_format.problems import lines_of, problem, refuse, shown, validate
from runner.task_format.schema import TaskDocument
from runner.task_format.trees import MAX_TOTAL_BYTES, ArchiveTree, FolderTree, Refused, Tree, resolve
from runner.task_format.yamlfile import parse_yaml

TASK_FILE = "task.yml"
EXTRA_FILE = "runner.yml"


def load(path: Path) -> TaskFolder:
    """Load a task from a folder or a .zip.

    Raises:
        TaskError: one line per problem.
    """
    return load_folder(path) if path.is_dir() else load_archive(path)


def load_folder(path: Path, *, name: str | None = None) -> TaskFolder:
    """Load a task folder.

    Sources may lie anywhere below the nearest ancestor that holds `.git`. Without one they may lie below the folder's
    parent (`../eval.py` is usual), unless that is the root of the file system.

    Args:
        path: the folder with task.yml.
        name: the task's name; default: the folder's.

    Raises:
        TaskError: one line per problem.
    """
    folder = path.resolve()
    if not folder.is_dir():
        raise TaskError(f"{path}: found no folder, expected one with a {TASK_FILE}")
    root = _repository_root(folder)
    inside = folder.relative_to(root).as_posix()
    # The root as the user would write it, so that messages show the path that was typed.
    shown_root = path.joinpath(*[".."] * len(folder.relative_to(root).parts))
    return _load(FolderTree(root, shown_root), "" if inside == "." else inside, name=name or folder.name)


def load_archive(path: Path) -> TaskFolder:
    """Load a task from a .zip that holds exactly one task.yml, at its top or in a folder.

    The archive's top is the repository root: `../eval.py` works if the archive has it.

    Raises:
        TaskError: one line per problem.
    """
    with contextlib.closing(ArchiveTree(path)) as tree:
        task_files = [name for name in tree.names() if PurePosixPath(name).name == TASK_FILE]
        tops = [TASK_FILE] if TASK_FILE in task_files else task_files
        if len(tops) != 1:
            listed = f" ({', '.join(sorted(tops)[:5])})" if tops else ""
            raise TaskError(f"{path}: found {len(tops)} files named {TASK_FILE}{listed}, expected exactly one")
        directory = str(PurePosixPath(tops[0]).parent)
        if directory == ".":
            return _load(tree, "", name=path.stem)
        return _load(tree, directory, name=PurePosixPath(directory).name)


def repository_of(folder: Path) -> Path:
    """The nearest ancestor (or the folder itself) that is a repository, else the folder."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _repository_root(folder: Path) -> Path:
    root = repository_of(folder)
    if (root / ".git").exists():
        return root
    parent = folder.parent
    # If the parent is /, every file of the system could be a source.
    return folder if parent == Path(parent.anchor) else parent


def _load(tree: Tree, directory: str, *, name: str) -> TaskFolder:
    path, extra_path = resolve(directory, TASK_FILE), resolve(directory, EXTRA_FILE)
    where, extra_where = tree.label(path), tree.label(extra_path)
    lines: list[str] = []
    document, extra = None, Extra()
    try:
        document = validate(TaskDocument, _document(tree, path), where=where)
    except TaskError as error:
        lines += lines_of(error)
    try:
        if tree.exists(extra_path):
            # An empty runner.yml means the same as none.
            extra = validate(Extra, _document(tree, extra_path) or {}, where=extra_where)
    except TaskError as error:
        lines += lines_of(error)
    if document is None:
        refuse(lines)
    reader = _Sources(tree, directory, where)
    files = reader.files(document)
    templates = reader.templates(document)
    validation = reader.validation(document)
    lines += [*reader.problems, *_repeated(document.gpus, where)]
    if lines:
        refuse(lines)
    return TaskFolder(
        name=name,
        task=build_task(
            document, files, extra, where=where, extra_where=extra_where, validation=validation, as_written=True
        ),
        description=document.description,
        templates=templates,
        gpus=tuple(document.gpus),
    )


def _document(tree: Tree, path: str) -> object:
    try:
        data = tree.read(path)
    except Refused as error:
        raise TaskError(f"{tree.label(path)}: {error}") from error
    return parse_yaml(data, tree.label(path))


def _repeated(gpus: list[str], where: str) -> Iterator[str]:
    twice = next((gpu for gpu in gpus if gpus.count(gpu) > 1), None)
    if twice is not None:
        yield problem(where, "gpus", f"{twice!r} twice", "different GPU types")


class _Sources:
    """Reads the files that a task.yml names, and collects all problems instead of stopping at the first."""

    def __init__(self, tree: Tree, directory: str, where: str) -> None:
        self._tree = tree
        self._directory = directory
        self._where = where
        self._total_bytes = 0
        self.problems: list[str] = []

    def files(self, document: TaskDocument) -> dict[str, str]:
        """`files` with their texts."""
        files: dict[str, str] = {}
        for index, entry in enumerate(document.files):
            key = f"files[{index}]"
            expected = name_problem(entry.name)
            if expected is not None:
                self.problems.append(problem(self._where, f"{key}.name", shown(entry.name), expected))
            elif entry.name in files:
                self.problems.append(
                    problem(self._where, f"{key}.name", f"{entry.name!r} a second time", "every name once")
                )
            else:
                files[entry.name] = self._text(entry.source, f"{key}.source")
        return files

    def templates(self, document: TaskDocument) -> dict[str, str]:
        """`templates` with their texts."""
        named: Iterator[tuple[str, str | None]] = iter(document.templates.model_dump().items())
        return {
            language: self._text(source, f"templates.{language}") for language, source in named if source is not None
        }

    def validation(self, document: TaskDocument) -> dict[str, str] | None:
        """`validation` with its script's text, as KernelBot stores it."""
        entry = document.validation
        if entry is None:
            return None
        return {"version": entry.version, "source": self._text(entry.script, "validation.script")}

    def _text(self, source: str, key: str) -> str:
        if source in (SUBMISSION, HARNESS):
            if not key.startswith("files"):
                self.problems.append(problem(self._where, key, shown(source), "the path of a file"))
            return source
        try:
            text = self._read(source)
        except Refused as error:
            self.problems.append(f"{self._where}: {key}: {error}")
            return ""
        return text

    def _read(self, source: str) -> str:
        if source.startswith("@"):
            raise Refused(f"found {source!r}, expected {SUBMISSION}, {HARNESS} or a path")
        data = self._tree.read(resolve(self._directory, source))
        self._total_bytes += len(data)
        if self._total_bytes > MAX_TOTAL_BYTES:
            raise Refused(f"found {self._total_bytes} bytes of files so far, expected at most {MAX_TOTAL_BYTES} in all")
        if b"\0" in data:
            raise Refused(f"found a NUL byte at offset {data.index(0)} of {source!r}, expected text")
        try:
            text = data.decode(ENCODING)
        except UnicodeDecodeError as error:
            actual = f"byte {data[error.start]:#04x} at offset {error.start} of {source!r}"
            raise Refused(f"found {actual}, expected UTF-8") from error
        if text in (SUBMISSION, HARNESS):
            raise Refused(f"found a file {source!r} that consists of {text}, expected that as the source itself")
        return text
