"""The floor of free disk space: what counts as room, and what cannot be seen."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.base.config import Config
from runner.base.disk import GIB, INODES, DiskFloor, disk_spaces
from runner.base.errors import DiskFullError

BLOCK = 4096


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """File systems by path, and the free blocks of each, and the inodes of all; other paths are not ours."""
    blocks: dict[str, int] = {}

    def statvfs(path: Path) -> SimpleNamespace:
        if str(path) not in blocks:
            raise PermissionError(13, "Permission denied")
        inodes = {"f_files": blocks.get("inodes", 0), "f_favail": blocks.get("free inodes", 0)}
        flag = blocks.get("flag", 0)
        return SimpleNamespace(
            f_bavail=blocks[str(path)], f_bfree=10**9, f_frsize=BLOCK, f_bsize=1, f_flag=flag, **inodes
        )

    monkeypatch.setattr(os, "statvfs", statvfs)
    return blocks


def test_jobs_are_taken_down_to_the_floor_and_not_below(tmp_path: Path, disks: dict[str, int]) -> None:
    """What root alone may use does not count; the error names the place, what is there and what ought to be.

    `min_free_gib = 0` turns it off.
    """
    floor = DiskFloor(Config(host_name="h", state_dir=tmp_path, min_free_gib=1.0), lambda: [Path("/data")])
    disks.update({str(tmp_path): GIB // BLOCK, "/data": GIB // BLOCK})
    floor.check()
    disks["/data"] -= 1
    with pytest.raises(DiskFullError, match=r"^the engine's data in /data: 1\.00 GiB free, floor 1 GiB: free some"):
        floor.check()
    disks.update({str(tmp_path): 0, "/data": GIB // BLOCK})
    with pytest.raises(DiskFullError, match=rf"^state_dir {tmp_path}: 0\.00 GiB free, floor 1 GiB: "):
        floor.check()
    DiskFloor(Config(host_name="h", state_dir=tmp_path, min_free_gib=0.0), lambda: ()).check()


def test_places_that_cannot_be_looked_at_or_are_not_there_yet(tmp_path: Path, disks: dict[str, int]) -> None:
    """An engine's data in another's home is the operator's to watch: it is shown as unseen, and stops nothing.

    `check` runs before the first start: a state directory counts where it will be.
    """
    disks[str(tmp_path)] = 7
    state, data = disk_spaces(tmp_path / "a" / "b", [Path("/data")], floor_gib=0.0)
    assert state.free_bytes == 7 * BLOCK
    assert (data.enough, str(data)) == (True, "the engine's data in /data: cannot be looked at from here")


@pytest.mark.parametrize(("inodes", "free", "enough"), [(0, 0, True), (9999, INODES, True), (9999, INODES - 1, False)])
def test_a_disk_without_inodes_is_full(
    tmp_path: Path, disks: dict[str, int], inodes: int, free: int, *, enough: bool
) -> None:
    """However many bytes are free; some file systems have no number of them."""
    disks.update({str(tmp_path): GIB, "inodes": inodes, "free inodes": free})
    (space,) = disk_spaces(tmp_path, (), floor_gib=1.0)
    assert (space.enough, "999 inodes free, floor 1000" in str(space)) == (enough, not enough)


def test_a_state_directory_that_cannot_be_written_stops_jobs(tmp_path: Path, disks: dict[str, int]) -> None:
    """However much is free, as after errors of the disk; below the unit the engine's data is always read-only."""
    disks.update({str(tmp_path): GIB, "/data": GIB, "flag": os.ST_RDONLY})
    floor = DiskFloor(Config(host_name="h", state_dir=tmp_path, min_free_gib=0.0), lambda: [Path("/data")])
    with pytest.raises(DiskFullError, match=rf"^state_dir {tmp_path}: read-only file system: mount it for writing"):
        floor.check()
    assert [space.enough for space in floor.disk_spaces()] == [False, True]
