"""A build archive on the host: bytes from one container, counted, kept in an unnamed file, sent to other containers.

A submission made the content, so the host must not read it; only init packs and unpacks it
(`sandbox.inside.build_archive`). The file has no name, so it disappears when its last user closes it or dies.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox import protocol


class JoinedArchives:
    """Several archives, sent as one. The request says where each begins."""

    def __init__(self, archives: Sequence[BuildArchive]) -> None:
        self._archives = archives

    @property
    def size_bytes(self) -> int:
        """Size of all of them."""
        return sum(archive.size_bytes for archive in self._archives)

    def frames(self) -> Iterator[bytes]:
        """Yield all of them as frames for another container."""
        for archive in self._archives:
            yield from archive.frames()


class BuildArchive:
    """One build archive. One thread writes it with `take`; then any number of threads may read it."""

    def __init__(self, directory: Path) -> None:
        """Create an empty archive on the file system of `directory`.

        Raises:
            OSError: the file cannot be created.
        """
        with tempfile.TemporaryFile(dir=directory) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._bytes = 0
        #: Why it must not be used; None: it may be used.
        self.refused: str | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the usable content; 0 if there is none or the archive was refused."""
        return 0 if self.refused is not None else self._bytes

    def take(self, piece: protocol.ArchivePiece) -> None:
        """Append a piece from a container.

        Raises:
            FrameError: the pieces exceed MAX_ARCHIVE_BYTES.
        """
        self._bytes += len(piece.data)
        if self._bytes > protocol.MAX_ARCHIVE_BYTES:
            raise protocol.FrameError(f"a build archive of more than {protocol.MAX_ARCHIVE_BYTES} bytes")
        self.refused = self.refused or (piece.refused or "")[:1000] or None
        if self.refused is None:
            try:
                self._write(piece.data)
            except OSError as error:
                # A full disk costs the archive only. The run whose container sends it continues.
                self.refused = f"it cannot be kept here: {error.strerror}"

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def frames(self) -> Iterator[bytes]:
        """Yield the whole archive as frames for another container.

        Raises:
            OSError: the file cannot be read.
        """
        for begin in range(0, self.size_bytes, protocol.ARCHIVE_PIECE_BYTES):
            data = os.pread(self._fd, protocol.ARCHIVE_PIECE_BYTES, begin)
            yield protocol.encode(protocol.ArchivePiece(data=data).to_message())
