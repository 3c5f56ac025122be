"""Checks whether the disks have enough free space for more jobs.

A full disk breaks what no submission caused: results cannot be spooled, build archives cannot be kept, containers
cannot be created. So the daemon stops claiming before, and continues by itself when there is space again. Deletes
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.base.config import Config
from runner.base.errors import DiskFullError

GIB: Final = 2**30
#: Fewer free inodes count as none: a result and a container take some.
INODES: Final = 1000
#: How to free a full disk.
_FREE: Final = (
    "free some (`docker system df` shows what the engine keeps, `docker image prune` removes replaced builds), or lower"
    " `min_free_gib`"
)
#: Also every place that the service's unit does not name.
_ALLOW: Final = "mount it for writing, and let the service write there (ReadWritePaths= in a drop-in, as in site.conf)"


@dataclass(frozen=True, kw_only=True)
class DiskSpace:
    """The free space of one place."""

    #: The purpose of the place, as the operator knows it.
    what: str
    path: Path
    #: Bytes that a process without privileges may still write; None: the place cannot be looked at from here.
    free_bytes: int | None
    floor_bytes: int
    #: None: the file system does not count them, or the place cannot be looked at.
    free_inodes: int | None = None
    #: Nothing can be written there; known of `state_dir` alone, as the engine's data need not be writable here.
    read_only: bool = False

    @property
    def enough(self) -> bool:
        """Whether jobs may be taken; unknown free space does not stop them."""
        inodes = self.free_inodes is None or self.free_inodes >= INODES or self.floor_bytes == 0
        return not self.read_only and (self.free_bytes is None or (self.free_bytes >= self.floor_bytes and inodes))

    @property
    def remedy(self) -> str:
        """What to do if it is not enough."""
        return _ALLOW if self.read_only else _FREE

    def __str__(self) -> str:
        """For people, in GiB."""
        if self.free_bytes is None:
            return f"{self.what} {self.path}: cannot be looked at from here"
        if self.read_only:
            return f"{self.what} {self.path}: read-only file system"
        few = self.free_inodes is not None and self.free_inodes < INODES
        inodes = f", {self.free_inodes} inodes free, floor {INODES}" if few else ""
        free, floor = self.free_bytes / GIB, self.floor_bytes / GIB
        return f"{self.what} {self.path}: {free:.2f} GiB free, floor {floor:g} GiB{inodes}"


def _space(what: str, path: Path, floor_bytes: int, *, of: Path, written: bool = False) -> DiskSpace:
    """The space of a place; `of`: a path on its file system; `written`: this process writes there."""
    try:
        status = os.statvfs(of)
    except OSError:
        return DiskSpace(what=what, path=path, free_bytes=None, floor_bytes=floor_bytes)
    return DiskSpace(
        what=what,
        path=path,
        free_bytes=status.f_bavail * status.f_frsize,
        floor_bytes=floor_bytes,
        free_inodes=status.f_favail if status.f_files else None,
        read_only=written and bool(status.f_flag & os.ST_RDONLY),
    )


def disk_spaces(state_dir: Path, data_roots: Sequence[Path], *, floor_gib: float) -> Sequence[DiskSpace]:
    """The places that fill up: the state directory, and the engine's data directories once they are known."""
    floor = int(floor_gib * GIB)
    # Before the first start there is no state directory: it will be made where its nearest parent is.
    state = next((place for place in (state_dir, *state_dir.parents) if os.path.lexists(place)), state_dir)
    data = (_space("the engine's data in", root, floor, of=root) for root in data_roots)
    return [_space("state_dir", state_dir, floor, of=state, written=True), *data]


class DiskFloor:
    """The limit of a running daemon; `data_roots` returns the engine's data directories once they are known."""

    def __init__(self, config: Config, data_roots: Callable[[], Sequence[Path]]) -> None:
        self._config = config
        self._data_roots = data_roots

    def disk_spaces(self) -> Sequence[DiskSpace]:
        """The places, as they are now."""
        return disk_spaces(self._config.state_dir, self._data_roots(), floor_gib=self._config.min_free_gib)

    def check(self) -> None:
        """Check whether jobs may be taken.

        Raises:
            DiskFullError: a place has less free space than `min_free_gib`, or is read-only; says which, and what to do.
        """
        short = [space for space in self.disk_spaces() if not space.enough]
        if short:
            raise DiskFullError(f"{'; '.join(map(str, short))}: {short[0].remedy}")
