"""Packs the files that a build leaves behind into one compressed tar, and unpacks it in another container.

Owns which files may travel: regular files, folders and symbolic links that stay below /work. Their number and size are
checked before any of them is read. A child with the worker's uid packs and unpacks, so it can reach nothing that the
submission could not. Modification times keep their nanoseconds: compilers' caches rebuild if a path or a time differs.
A tar header's own field cannot hold nanoseconds, so they travel in an extended header.

Must not run any file that it finds. Standard library only: this runs inside the container.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from sandbox import protocol
from sandbox.inside.boot import WORK, BootConfig
from sandbox.inside.connection import DaemonConnection
from sandbox.inside.process import HelperError, InitError, Reaper, run_as

#: Limit of all files together, uncompressed.
MAX_CONTENT_BYTES = 256 << 20
MAX_ENTRIES = 20_000
#: File by which torch's extension builder locks a build. If it travelled, every later build would wait for ever.
_LOCK = "lock"
#: Bytes that a tar may need beyond its content: headers and padding.
_OVERHEAD_BYTES = MAX_ENTRIES * 4096


class Refused(Exception):
    """A file may not travel. The message names it and the reason."""


def check_name(name: str) -> str:
    """The name if it stays below /work (relative, without `..` and NUL), else ValueError."""
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name or name.startswith("/") or ".." in parts or name.endswith("/"):
        raise ValueError(f"file name {name!r} does not stay below {WORK}")
    return name


def send_archive(keep: Sequence[str], *, boot: BootConfig, daemon: DaemonConnection, reaper: Reaper) -> None:
    """Send the daemon the files of these names that exist, or the reason why they may not travel."""
    try:
        data = run_as(
            boot.worker_account, lambda fd: pack(keep, fd), reaper=reaper, max_bytes=protocol.MAX_ARCHIVE_BYTES
        )
    except (HelperError, InitError) as error:
        daemon.send(protocol.ArchivePiece(data=b"", refused=str(error)).to_message())
        return
    for begin in range(0, len(data), protocol.ARCHIVE_PIECE_BYTES):
        piece = bytes(data[begin : begin + protocol.ARCHIVE_PIECE_BYTES])
        daemon.send(protocol.ArchivePiece(data=piece).to_message())


def unpack_archive(data: bytes, *, boot: BootConfig, reaper: Reaper) -> None:
    """Unpack an archive below /work before any program of the submission runs. An empty one does nothing.

    Raises:
        InitError: it is not an archive, or it does not fit.
    """
    if data:
        try:
            run_as(boot.worker_account, lambda _: unpack(data), reaper=reaper)
        except HelperError as error:
            raise InitError(f"the build archive cannot be unpacked in {WORK}: {error}") from error


def pack(keep: Sequence[str], fd: int) -> None:
    """Write an archive of those names in the working directory that exist to a descriptor (runs as the worker).

    If none exists, nothing is written.

    Raises:
        Refused: a file may not travel, or there are too many files or bytes.
    """
    # Check everything before reading anything. Nothing changes meanwhile: the worker's processes are dead.
    entries = list(_survey(keep))
    if not entries:
        return
    with (
        os.fdopen(os.dup(fd), "wb") as sink,
        gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, status in entries:
            member = _member(name, status)
            if member.isreg():
                with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)


def _survey(keep: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every entry, a folder before its content."""
    entries_left, bytes_left = MAX_ENTRIES, MAX_CONTENT_BYTES
    stack = [name for name in sorted(keep, reverse=True) if os.path.lexists(name)]
    while stack:
        name = stack.pop()
        status = os.lstat(name)
        if posixpath.basename(name) == _LOCK and stat.S_ISREG(status.st_mode):
            continue
        _check_entry(name, status)
        entries_left -= 1
        # The apparent size counts: unpacking writes out the holes of sparse files.
        bytes_left -= status.st_size if stat.S_ISREG(status.st_mode) else 0
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(name) as listing:
                # One entry over the limit is enough to know that it is exceeded.
                stack += [entry.path for entry in itertools.islice(listing, entries_left + 1)]
        if entries_left < len(stack):
            raise Refused(f"more than {MAX_ENTRIES} files and folders")
        if bytes_left < 0:
            raise Refused(f"more than {MAX_CONTENT_BYTES} bytes")
        yield name, status


def _check_entry(name: str, status: os.stat_result) -> None:
    mode = status.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise Refused(f"{name!r} is neither file nor folder nor symbolic link")
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise Refused(f"{name!r} is set-uid or set-gid")
    if stat.S_ISLNK(mode):
        _check_link(name, _target(name))


def _target(name: str) -> str:
    return str(Path(name).readlink())


def _check_link(name: str, target: str) -> None:
    # Where `..` leads depends on other links in the path, so it is refused.
    if target.startswith("/") or ".." in PurePosixPath(target).parts:
        raise Refused(f"{name!r} is a link to {target!r}, expected a relative name without '..'")


def _member(name: str, status: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode = status.st_mode & 0o777
    time_ns = max(0, status.st_mtime_ns)
    member.mtime = time_ns // 10**9
    # The header's own field would be rounded. `_time_ns` reads this one.
    member.pax_headers = {"mtime": f"{time_ns // 10**9}.{time_ns % 10**9:09d}"}
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, _target(name)
    else:
        member.size = status.st_size
    return member


class _Bounded(io.RawIOBase):
    """Limits the bytes that are read: a few kilobytes may unpack to terabytes."""

    def __init__(self, source: IO[bytes], max_bytes: int) -> None:
        self._source = source
        self._remaining = max_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(min(size, self._remaining + 1) if size >= 0 else self._remaining + 1)
        self._remaining -= len(data)
        if self._remaining < 0:
            raise Refused(f"more than {MAX_CONTENT_BYTES} bytes")
        return data


def unpack(data: bytes) -> None:
    """Create an archive's files in the working directory (runs as the worker). Existing files are not replaced.

    The archive comes from a container in which a submission ran, so every check is made again.

    Raises:
        Refused: a file may not travel, or there are too many files or bytes.
        OSError: not such an archive, a file of that name exists, or the disk is full.
    """
    links: list[tuple[str, str]] = []
    folders: list[tuple[str, int, int]] = []
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unzipped:
        bounded = _Bounded(unzipped, MAX_CONTENT_BYTES + _OVERHEAD_BYTES)  # type: ignore[arg-type] # read is all it uses
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_ENTRIES:
                    raise Refused(f"more than {MAX_ENTRIES} files and folders")
                name = check_name(member.name)
                if member.isdir():
                    _make_folder(name)
                    folders.append((name, member.mode & 0o777, _time_ns(member)))
                elif member.issym():
                    _check_link(name, member.linkname)
                    links.append((name, member.linkname))
                elif member.isreg():
                    _make_folder(posixpath.dirname(name))
                    _make_file(name, archive.extractfile(member), member)
                else:
                    raise Refused(f"{name!r} is neither file nor folder nor symbolic link")
    # Links come last, so that no file is written through them.
    for name, target in links:
        _make_folder(posixpath.dirname(name))
        Path(name).symlink_to(target)
    for name, mode, time_ns in reversed(folders):
        Path(name).chmod(mode)
        os.utime(name, ns=(time_ns, time_ns), follow_symlinks=False)


def _make_folder(name: str) -> None:
    if name:
        Path(name).mkdir(parents=True, exist_ok=True)


def _make_file(name: str, content: IO[bytes] | None, member: tarfile.TarInfo) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        while content is not None and (chunk := content.read(1 << 18)):
            file.write(chunk)
        file.flush()
        os.fchmod(fd, member.mode & 0o777)
        os.utime(fd, ns=(_time_ns(member), _time_ns(member)))


def _time_ns(member: tarfile.TarInfo) -> int:
    seconds, _, fraction = member.pax_headers.get("mtime", "0").partition(".")
    return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0") or "0")
