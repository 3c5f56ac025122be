"""The folder of an export: written beside the old one, and put in its place in one step. Knows no format.

Whatever ends the process, the folder holds the old export or the new one. Two folders change places by renameat2, which
Linux does on its local file systems.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from runner.base.durable import sync_directory
from runner.base.errors import DataError

MANIFEST: Final = "manifest.json"
_SHIPPED: Final = Path(__file__).parent / "shipped"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, for the new export. It goes at the end, unless `replace` has used it.

    Raises:
        DataError: another export to the target runs, or its parent cannot be written, as on a disk that is full.
    """
    folder = target.parent / f".{target.name}.kernel-runner-export"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Of the parent, because the folders themselves change places.
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataError(f"another export to a folder in {target.parent} is running; wait for its end") from None
    try:
        folder.mkdir(exist_ok=True)
        # What a process left that was killed.
        empty(folder)
        yield folder
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _unwritable(target: Path, error: OSError) -> DataError:
    # The one of a library has a text alone.
    reason = error.strerror or str(error)
    return DataError(
        f"cannot write beside {target}: {reason}; name a folder in one that you may write, and that has room"
    )


def empty(folder: Path) -> None:
    """Remove whatever a folder holds."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def replace(target: Path, new: Path) -> None:
    """Put a folder in the target's place in one step; the target's old content is then where the new one was.

    Raises:
        DataError: the file system cannot do that.
    """
    for folder, _, files in os.walk(new):
        for name in files:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))
    if target.exists():
        shutil.copymode(target, new)
        _exchange(target, new)
    else:
        new.rename(target)
    sync_directory(target.parent)


def _exchange(one: Path, other: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if library.renameat2(*arguments) == 0:
        return
    code = ctypes.get_errno()
    hint = (
        "; export to a new folder, or to a local file system"
        if code in (errno.EINVAL, errno.ENOSYS, errno.EXDEV)
        else ""
    )
    raise DataError(
        f"cannot put the new export in the place of {one}: {os.strerror(code)}{hint}. The old one is untouched"
    )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_of(folder: Path) -> list[str]:
    """The paths of all files and links of a folder, relative to it, sorted."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def copy_shipped(folder: Path) -> None:
    """Put the queries and scripts of every export into it."""
    shutil.copytree(_SHIPPED, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
