"""Removes everything that a worker left behind: files, access lists, message queues, and objects of System V.

A later worker of the same container must find nothing of an earlier one's. Runs when none of the worker's processes is
left. Directories may be nested so deeply that no path reaches their end, and may forbid their owner everything. So a
directory's content is moved up before it is removed. Files of root's stay. The places where a worker writes, the
judge's user writes, too, as a reference may: each of the two removes what the other one may not, until nothing is left.
Between two requests the judge's own directory is emptied, too.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from sandbox.inside.boot import JUDGE, TMP, WORK, BootConfig
from sandbox.inside.process import Account, HelperError, InitError, Reaper, run_as

#: Where a worker can write, and the mode that the directory itself gets back; None: it belongs to root.
_PLACES = ((WORK, 0o700), (TMP, 0o1777), ("/dev/shm", None), ("/dev/mqueue", None))  # noqa: S108 the container's own
#: Where only the judge's user can write, likewise.
_JUDGE_PLACE = (JUDGE, 0o700)
_SHARED_MEMORY = Path("/proc/sysvipc/shm")
_SEMAPHORES = Path("/proc/sysvipc/sem")
_IPC_RMID = 0
_FS_IOC_SETFLAGS = 0x40086602
#: Of a directory that is about to be removed: the other user must get at what it holds.
_OPEN = 0o777
#: What a pass may say: a number and a path.
_ANSWER_BYTES = 1 << 14


def clean_up(boot: BootConfig, reaper: Reaper, *, judge_too: bool = False) -> None:
    """Remove what the worker left, and, with `judge_too`, the judge. All processes of theirs must be gone.

    Raises:
        InitError: something is still there.
    """
    try:
        # The worker may have forbidden its own directory.
        worker, judge = (replace(account, directory="/") for account in (boot.worker_account, boot.judge_account))
        while True:
            removed, left = _pass(worker, reaper)
            if not left and not judge_too:
                return
            removed_too, left_too = _pass(judge, reaper, judge_too=judge_too)
            if judge_too and not left and not left_too:
                return
            if not removed and not removed_too:
                raise InitError(f"what a worker left behind cannot be removed: {left or left_too}")
    except HelperError as error:
        raise InitError(f"what a worker left behind cannot be removed: {error}") from error


def _pass(account: Account, reaper: Reaper, *, judge_too: bool = False) -> tuple[int, str]:
    """Remove as a user; return how much went, and something that is still there, if anything is."""
    places = (*_PLACES, _JUDGE_PLACE) if judge_too else _PLACES

    def answer(descriptor: int) -> None:
        removed, left = remove_all(places)
        os.write(descriptor, f"{removed} {left}".encode("utf-8", "replace")[:_ANSWER_BYTES])

    removed, _, left = run_as(account, answer, reaper=reaper, max_bytes=_ANSWER_BYTES).decode().partition(" ")
    return int(removed), left


def remove_all(places: Sequence[tuple[str, int | None]]) -> tuple[int, str]:
    """Empty the places and remove System V objects, as far as this user may; see `_pass`."""
    removed = 0
    left: list[str] = []
    for place, mode in places:
        if not Path(place).is_dir():
            continue
        # A default access list would hold for whatever the next worker makes there.
        for name in _attributes(place):
            removed += _tried(os.removexattr, place, name)
        # Open meanwhile: the other user may have to remove something there.
        with suppress(PermissionError):
            if mode is not None:
                Path(place).chmod(mode | _OPEN)
        removed += empty(place)
        children = [child for child in _children(Path(place)) if not _is_of_root(child)]
        left += map(str, children)
        with suppress(PermissionError):
            if mode is not None and not children:
                Path(place).chmod(mode)
        _reset(place)
    removed += remove_system_v()
    left += [f"{table} {number}" for table in (_SHARED_MEMORY, _SEMAPHORES) for number in _ids(table)]
    return removed, next(iter(left), "")


def _reset(place: str) -> None:
    """Take back times and flags of a directory that its owner may have set."""
    with suppress(OSError):
        os.utime(place)
    with suppress(OSError):
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, bytes(8))
        finally:
            os.close(descriptor)


def empty(top: str) -> int:
    """Remove everything below a directory that this user may remove; return how much that was."""
    names = _free_names(top)
    removed = 0
    changed = True
    while changed:
        changed = False
        for entry in _children(Path(top)):
            if _is_folder(entry):
                changed |= _move_up(entry, names)
                gone = _tried(entry.rmdir)
            else:
                gone = _tried(entry.unlink)
            removed += gone
            changed |= gone
    return removed


def _move_up(folder: Path, names: Iterator[str]) -> bool:
    """Move what a directory holds beside it; return whether anything was moved."""
    _tried(folder.chmod, _OPEN)
    moved = False
    for child in _children(folder):
        if _is_folder(child):
            # A directory that is moved must be writable itself.
            _tried(child.chmod, _OPEN)
        moved |= _tried(child.rename, next(names))
    return moved


def _tried(deed: Callable[..., object], *arguments: object) -> bool:
    """Whether the kernel lets this user do it."""
    try:
        deed(*arguments)
    except OSError:
        return False
    return True


def _children(folder: Path) -> list[Path]:
    """The paths in a directory; none where this user may not look."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _attributes(place: str) -> list[str]:
    """The extended attributes of a directory, access lists among them."""
    with suppress(OSError):
        return os.listxattr(place)
    return []


def _is_folder(path: Path) -> bool:
    # Not is_dir: a link may lead where this user may not look.
    return stat.S_ISDIR(path.lstat().st_mode)


def _is_of_root(entry: Path) -> bool:
    """Whether it is a file of root's alone: a driver's, for a worker that waits. No worker can make or change one.

    Where the kernel lets it, a worker can give one a second name, which a later worker would read.
    """
    status = entry.lstat()
    return status.st_uid == 0 and stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022 and status.st_nlink == 1


def _free_names(top: str) -> Iterator[str]:
    """Paths in a directory that nothing has."""
    paths = (f"{top}/.emptied-{number}" for number in count(1))
    return (path for path in paths if not os.path.lexists(path))


def remove_system_v() -> int:
    """Remove shared memory and semaphores of this uid; return how many."""
    libc = ctypes.CDLL(None)
    gone = [libc.shmctl(number, _IPC_RMID, None) for number in _ids(_SHARED_MEMORY)]
    gone += [libc.semctl(number, 0, _IPC_RMID, None) for number in _ids(_SEMAPHORES)]
    return gone.count(0)


def _ids(table: Path) -> list[int]:
    """The ids in a table of the kernel; none where there is no such table."""
    with suppress(OSError):
        return [int(line.split()[1]) for line in table.read_text(encoding="ascii").splitlines()[1:]]
    return []
