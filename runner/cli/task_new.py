"""`task new`: a task folder to start from, made of the skeletons beside this module.

The skeletons end in `.in`, so that no tool takes them for this project's own code.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import tasks
from runner.base.errors import TaskError
from runner.task_format.model import HARNESS, Lang

_SKELETONS = Path(__file__).parent / "skeletons"
_SUFFIX = ".in"
#: A folder, a leaderboard and a word in `#!POPCORN leaderboard NAME`.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}", re.ASCII)


def make_folder(directory: Path, name: str, lang: Lang) -> Path:
    """Make the folder of a new task and return it.

    Where `eval.py` and `utils.py` lie in `directory`, as in a collection of tasks, the folder uses these; else it
    stands alone, with the built-in eval program and a `utils.py` of its own.

    Raises:
        TaskError: the name is no name, something of that name is there, or the folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"task name is {name!r}, expected a letter and then up to 99 letters, digits, '_' and '-': "
            "it names a folder and a leaderboard"
        )
    folder = directory / name
    if folder.exists() or folder.is_symlink():
        raise TaskError(f"{folder} is there already; choose another name, or another --directory")
    try:
        _write(folder, dict(_files(directory, lang)))
    except OSError as error:
        raise TaskError(f"{folder} cannot be written ({error.strerror}); choose another --directory") from error
    return folder


def _files(directory: Path, lang: Lang) -> Iterator[tuple[str, str]]:
    shared = all((directory / name).is_file() for name in ("eval.py", "utils.py"))
    words = {
        "{{eval}}": "../eval.py" if shared else HARNESS,
        "{{utils}}": "../utils.py" if shared else "utils.py",
    }
    root = _SKELETONS / lang
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        text = path.read_text(encoding="utf-8")
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        yield path.relative_to(root).as_posix().removesuffix(_SUFFIX), text
    if lang is Lang.PY and not shared:
        yield "utils.py", (Path(tasks.__file__).parent / "problems" / "utils.py").read_text(encoding="utf-8")


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write beside the folder and rename: a half-written task is worse than none."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, text in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        # mkdtemp's folders are the owner's alone.
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
