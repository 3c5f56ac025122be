"""An archive on the daemon's side: bytes of a submission's making, counted, kept in a file without a name, passed on.

Nothing here or above it looks inside: what an archive is, only init knows (`steward_bundle`). The file has no
name, so it is gone with its last user, however that one ends. Called by the engine's conversation and by whoever keeps
archives.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from sandbox import protocol


class BuildArchive:
    """Written by one thread with `take`, then read by any number of them."""

    def __init__(self, directory: Path) -> None:
        """Make an empty one on the file system of `directory`.

        Raises:
            OSError: the file cannot be made.
        """
        with tempfile.TemporaryFile(dir=directory) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._bytes = 0
        self._refused: str | None = None

    @property
    def size_bytes(self) -> int:
        """How much there is; 0: nothing, or nothing that may be used."""
        return 0 if self._refused is not None else self._bytes

    @property
    def refused(self) -> str | None:
        """Why it must not be used; None: it may."""
        return self._refused

    def take(self, piece: protocol.ArchivePiece) -> None:
        """Add what a container has sent.

        Raises:
            FrameError: it sends more than an archive may have.
        """
        self._bytes += len(piece.data)
        if self._bytes > protocol.MAX_ARCHIVE_BYTES:
            raise protocol.FrameError(f"an archive of more than {protocol.MAX_ARCHIVE_BYTES} bytes")
        self._refused = self._refused or piece.refused
        if self._refused is None:
            try:
                self._write(piece.data)
            except OSError as error:
                # A full disk is no reason to end the container's conversation.
                self._refused = f"it cannot be kept here: {error.strerror}"

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def frames(self) -> Iterator[bytes]:
        """All of it as frames for another container.

        Raises:
            OSError: it cannot be read.
        """
        for begin in range(0, self.size_bytes, protocol.ARCHIVE_PIECE_BYTES):
            data = os.pread(self._fd, protocol.ARCHIVE_PIECE_BYTES, begin)
            yield protocol.encode(protocol.ArchivePiece(data=data).to_message())
