"""Reads files of an untrusted task: from a folder below its repository root, or from a .zip without unpacking it.

Owns the size limits and the checks that keep a source inside its root.
"""

from __future__ import annotations

import os
import posixpath
import stat
import zipfile
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath
from zlib import error as ZlibError  # noqa: N812 zlib names its exception in lower case

from runner.base.errors import TaskError

MAX_FILE_BYTES = 1 << 20
MAX_TOTAL_BYTES = 4 << 20
#: Limits of archives: bytes of the file, number of entries, bytes once unpacked, and the compression ratio.
MAX_ARCHIVE_BYTES = 16 << 20
MAX_ENTRIES = 2000
MAX_UNPACKED_BYTES = 64 << 20
MAX_RATIO = 200
#: The ratio of smaller files has no limit: a page of blanks is no bomb.
_RATIO_FREE_BYTES = 64 << 10


class Refused(ValueError):
    """A source that may not be read. The message is `found …, expected …`, without the file and key."""


class Tree(ABC):
    """A root above all sources. Paths are POSIX, relative to the root."""

    @abstractmethod
    def label(self, path: str) -> str:
        """The name of a file in messages."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of a file inside the root.

        Raises:
            Refused: outside the root, absent, not a regular file, or over MAX_FILE_BYTES.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether an entry of this name exists."""


def resolve(directory: str, source: str) -> str:
    """The path of a source below the root.

    Args:
        directory: the directory of the file that names the source, relative to the root.
        source: the source as that file names it.

    Raises:
        Refused: absolute, or above the root.
    """
    if "\0" in source or "\\" in source or PurePosixPath(source).is_absolute():
        raise Refused(f"found the source {source!r}, expected a relative path with '/'")
    path = posixpath.normpath(posixpath.join(directory, source))
    if path == ".." or path.startswith("../"):
        raise Refused(
            f"found the source {source!r}, which leaves the task's repository, expected a path inside it (that is the "
            "archive, or the nearest folder upwards that holds .git, else the task folder's parent)"
        )
    return path


class FolderTree(Tree):
    """A directory on disk. Symbolic links are followed as long as they stay below the root."""

    def __init__(self, root: Path, shown_root: Path) -> None:
        """`root` is resolved; `shown_root` is the same directory for messages."""
        self._root = root
        self._shown_root = shown_root

    def label(self, path: str) -> str:
        """The path below the directory that the user has named."""
        return os.path.normpath(self._shown_root / path)

    def exists(self, path: str) -> bool:
        """Whether an entry of this name exists; a broken link counts."""
        return os.path.lexists(self._root / path)

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        try:
            real = (self._root / path).resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links (Python before 3.13)
            reason = getattr(error, "strerror", None) or str(error)
            raise Refused(f"found no readable file {self.label(path)} ({reason}), expected one") from error
        if not real.is_relative_to(self._root):
            raise Refused(f"found {self.label(path)}, a link out of the task's repository, expected a file inside it")
        try:
            # O_NONBLOCK: opening a named pipe must not wait for a writer.
            descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(f"found {self.label(path)} unreadable ({error.strerror}), expected a file") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused(f"found {self.label(path)}, which is no regular file, expected one")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return _bounded(file.read(MAX_FILE_BYTES + 1), self.label(path))
        finally:
            os.close(descriptor)


class ArchiveTree(Tree):
    """A .zip file, read member by member. Nothing is unpacked to disk."""

    def __init__(self, path: Path) -> None:
        """Open and check the archive's directory.

        Raises:
            TaskError: not a .zip, too large, or an entry that is absolute, climbs, links, repeats or is a bomb.
        """
        self._shown = str(path)
        try:
            size = path.stat().st_size
            if size > MAX_ARCHIVE_BYTES:
                raise TaskError(f"{path}: found {size} bytes, expected a .zip of at most {MAX_ARCHIVE_BYTES}")
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise TaskError(f"{path}: found an unreadable file ({error.strerror}), expected a .zip") from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise TaskError(f"{path}: found no valid .zip ({error}), expected one") from error
        try:
            self._members = self._index()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def names(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(self._members)

    def label(self, path: str) -> str:
        """The archive's name, and the member's."""
        return f"{self._shown}/{path}"

    def exists(self, path: str) -> bool:
        """Whether the archive has this file."""
        return path in self._members

    def read(self, path: str) -> bytes:
        """The bytes of a member.

        Raises:
            Refused: see `Tree.read`; also damaged, encrypted or packed in an unknown way.
        """
        member = self._members.get(path)
        if member is None:
            raise Refused(f"found no file {path!r} in {self._shown}, expected one")
        try:
            with self._zip.open(member) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (
            zipfile.BadZipFile,
            ZlibError,
            EOFError,
            NotImplementedError,
            RuntimeError,
            OSError,
            ValueError,
        ) as error:
            raise Refused(
                f"found {self.label(path)} damaged or packed in an unknown way ({error}), expected a plain entry"
            ) from error
        return _bounded(data, self.label(path))

    def _index(self) -> dict[str, zipfile.ZipInfo]:
        entries = self._zip.infolist()
        if len(entries) > MAX_ENTRIES:
            raise TaskError(f"{self._shown}: found {len(entries)} entries, expected at most {MAX_ENTRIES}")
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > MAX_UNPACKED_BYTES:
            raise TaskError(
                f"{self._shown}: found {unpacked} bytes once unpacked, expected at most {MAX_UNPACKED_BYTES}"
            )
        members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            name = entry.orig_filename
            fault = _entry_problem(entry)
            if fault is None and name in members:
                fault = "a second entry of this name"
            if fault is not None:
                raise TaskError(
                    f"{self._shown}: entry {name!r}: found {fault}, expected a plain file inside the archive"
                )
            if not entry.is_dir():
                members[name] = entry
        return members


def _entry_problem(entry: zipfile.ZipInfo) -> str | None:
    """Why an archive's entry is refused; None: it is fine."""
    name = entry.orig_filename
    parts = name.removesuffix("/").split("/")
    if PurePosixPath(name).is_absolute() or "\\" in name or "\0" in name or ":" in parts[0]:
        return "an absolute or foreign path"
    if any(part in ("", ".", "..") for part in parts):
        return "a path with an empty part, '.' or '..'"
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or special file"
    # Other methods fail in ways of their own, and may take memory that they name themselves.
    if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "an encrypted file, or one packed otherwise than by deflate"
    if entry.file_size > _RATIO_FREE_BYTES and entry.file_size > MAX_RATIO * max(1, entry.compress_size):
        return f"{entry.compress_size} bytes that unpack to {entry.file_size}"
    return None


def _bounded(data: bytes, label: str) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise Refused(f"found {label} with more than {MAX_FILE_BYTES} bytes, expected at most that")
    return data
