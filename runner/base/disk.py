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
#: How to free a full disk.
REMEDY: Final = (
    "free some (`docker system df` shows what the engine keeps, `docker image prune` removes replaced builds), or lower"
    " `min_free_gib`"
)


@dataclass(frozen=True, kw_only=True)
class DiskSpace:
    """The free space of one place."""

    #: The purpose of the place, as the operator knows it.
    what: str
    path: Path
    #: Bytes that a process without privileges may still write; None: the place cannot be looked at from here.
    free_bytes: int | None
    floor_bytes: int

    @property
    def enough(self) -> bool:
        """Whether jobs may be taken; unknown free space does not stop them."""
        return self.free_bytes is None or self.free_bytes >= self.floor_bytes

    def __str__(self) -> str:
        """For people, in GiB."""
        if self.free_bytes is None:
            return f"{self.what} {self.path}: cannot be looked at from here"
        return f"{self.what} {self.path}: {self.free_bytes / GIB:.2f} GiB free, floor {self.floor_bytes / GIB:g} GiB"


def free_bytes(path: Path) -> int | None:
    """Bytes that may still be written below a path; None: the path is missing or not readable."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def disk_spaces(state_dir: Path, data_root: Path | None, *, floor_gib: float) -> Sequence[DiskSpace]:
    """The places that fill up: the state directory, and the engine's data directory once it is known."""
    floor = int(floor_gib * GIB)
    # Before the first start there is no state directory: it will be made where its nearest parent is.
    state = next((place for place in (state_dir, *state_dir.parents) if os.path.lexists(place)), state_dir)
    spaces = [DiskSpace(what="state_dir", path=state_dir, free_bytes=free_bytes(state), floor_bytes=floor)]
    if data_root is not None:
        free = free_bytes(data_root)
        spaces.append(DiskSpace(what="the engine's data in", path=data_root, free_bytes=free, floor_bytes=floor))
    return spaces


class DiskFloor:
    """The limit of a running daemon; `data_root` returns the engine's data directory once that is known."""

    def __init__(self, config: Config, data_root: Callable[[], Path | None]) -> None:
        self._config = config
        self._data_root = data_root

    def disk_spaces(self) -> Sequence[DiskSpace]:
        """The places, as they are now."""
        return disk_spaces(self._config.state_dir, self._data_root(), floor_gib=self._config.min_free_gib)

    def check(self) -> None:
        """Check whether jobs may be taken.

        Raises:
            DiskFullError: a place has less free space than `min_free_gib`; says which, and what to do.
        """
        short = [space for space in self.disk_spaces() if not space.enough]
        if short:
            raise DiskFullError(f"{'; '.join(map(str, short))}: {REMEDY}")
