"""Folders in which an editor holds a lock, and which a Mac has written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.cli import main
from runner.extras.boards.commands.task_check import _solutions
from runner.extras.trainers.client import sources
from runner.task_format import load

_TYPE = 'name = "MINE"\nvendor = "none"\ndetect = false\n'


def litter(folder: Path) -> None:
    """Beside every file and folder what other programs leave under its name."""
    for path in [folder, *folder.rglob("*")]:
        if path.name.startswith("."):
            continue
        (path.parent / f".#{path.name}").symlink_to("somebody@host.123:1700000000")
        (path.parent / f"._{path.name}").write_bytes(b"\0\5\x16\7\0\2\xff")
        (path.parent / f".{path.name}.swp").write_bytes(b"b0VIM\xff")
        if path.is_dir():
            (path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1\xff")


def _types(folder: Path) -> Iterator[object]:
    yield sorted(gpu.name for gpu in Registry.load(folder).all() if gpu.name == "MINE")


def _task(folder: Path) -> Iterator[object]:
    yield load(folder)
    for kind in ("correct", "wrong"):
        yield dict(_solutions(folder, kind))


def _problems(folder: Path) -> Iterator[object]:
    yield from sources.read(folder)


@pytest.mark.parametrize("reader", [_types, _task, _problems])
def test_a_folder_is_read_as_if_they_were_not_there(tmp_path: Path, reader: Callable[[Path], Iterator[object]]) -> None:
    """GPU types, a task with its solutions, a trainer's problems."""
    folder = tmp_path / "folder"
    if reader is _task:
        assert main(["task", "new", folder.name, "--directory", str(tmp_path)]) == 0
    else:
        (folder / "one").mkdir(parents=True)
        (folder / "mine.toml").write_text(_TYPE, encoding="utf-8")
        for name in ("reference.py", "candidate.py"):
            (folder / "one" / name).write_text("x = 1\n", encoding="utf-8")
    plain = list(reader(folder))
    assert plain
    assert plain != [[]]
    litter(folder)
    assert list(reader(folder)) == plain
