"""Removes everything that a worker left behind: files, and objects of System V that outlive their processes.

A later worker of the same container must find nothing of an earlier one's. Runs as the worker, when none of its
processes is left. Directories may be nested so deeply that no path reaches their end, and may forbid their owner
everything. So a directory's content is moved up before it is removed.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sandbox.inside.boot import TMP, WORK, BootConfig
from sandbox.inside.process import HelperError, InitError, Reaper, run_as

#: Where a worker can write, and the mode that the directory itself gets back; None: it belongs to root.
_PLACES = ((WORK, 0o700), (TMP, 0o1777), ("/dev/shm", None))  # noqa: S108 the container's own
_IPC_RMID = 0
_OWNER_ALL = 0o700


def clean_up(boot: BootConfig, reaper: Reaper) -> None:
    """Remove what the worker left. All its processes must be gone.

    Raises:
        InitError: something is still there.
    """
    try:
        # The worker may have forbidden its own directory.
        run_as(replace(boot.worker, directory="/"), lambda _: remove_all(), reaper=reaper)
    except HelperError as error:
        raise InitError(f"what a worker left behind cannot be removed: {error}") from error


def remove_all() -> None:
    """Empty the places and remove the worker's System V objects.

    Raises:
        OSError: something could not be removed.
    """
    for place, mode in _PLACES:
        if not Path(place).is_dir():
            continue
        if mode is not None:
            Path(place).chmod(mode)
        empty(place)
    remove_system_v()


def empty(top: str) -> None:
    """Remove everything below a directory.

    Raises:
        OSError: something could not be removed.
    """
    names = _free_names(top)
    while entries := list(Path(top).iterdir()):
        for entry in entries:
            if not _is_folder(entry):
                entry.unlink()
                continue
            entry.chmod(_OWNER_ALL)
            for child in list(entry.iterdir()):
                if _is_folder(child):
                    # A directory that is moved must be writable itself.
                    child.chmod(_OWNER_ALL)
                child.rename(next(names))
            entry.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _free_names(top: str) -> Iterator[str]:
    """Paths in a directory that nothing has."""
    number = 0
    while True:
        number += 1
        path = f"{top}/.emptied-{number}"
        if not os.path.lexists(path):
            yield path


def remove_system_v() -> None:
    """Remove shared memory and semaphores of this uid."""
    libc = ctypes.CDLL(None)
    for number in _ids(Path("/proc/sysvipc/shm")):
        libc.shmctl(number, _IPC_RMID, None)
    for number in _ids(Path("/proc/sysvipc/sem")):
        libc.semctl(number, 0, _IPC_RMID, None)


def _ids(table: Path) -> Iterator[int]:
    """The ids in a table of the kernel; none where there is no such table."""
    with suppress(OSError):
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            yield int(line.split()[1])
