"""Removing what a worker left, however it is nested and whatever it forbids."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.inside.clean import empty


def test_everything_goes(tmp_path: Path) -> None:
    """Files, links that lead out, folders that forbid everything, names that the cleaner would use."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    (top / ".emptied-1").mkdir()
    (top / ".emptied-1" / "x").write_text("x")
    (top / ".emptied-2").write_text("x")
    locked = top / "a" / "b"
    locked.mkdir(parents=True)
    (locked / "link").symlink_to(outside)
    locked.chmod(0)
    (top / "a").chmod(0)
    empty(str(top))
    assert list(top.iterdir()) == []
    assert (outside / "kept").read_text() == "kept"


def test_nesting_that_no_path_reaches(tmp_path: Path) -> None:
    """Deeper than a path may be long, and than Python recurses."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 10, dir_fd=here)
        deeper = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
