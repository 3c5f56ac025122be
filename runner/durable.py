"""What a file needs to survive a power cut beyond its own fsync. Called by whoever keeps state in files."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make what was created, renamed or removed in a directory last.

    Raises:
        OSError: the disk fails, or it is no directory.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
