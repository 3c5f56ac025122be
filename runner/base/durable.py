"""The steps beyond a file's own fsync that let it survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make files that were created, renamed or removed in a directory durable.

    Raises:
        OSError: the disk fails, or it is no directory.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
