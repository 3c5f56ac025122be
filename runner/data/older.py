"""The export that is in the target folder already: which of its files may be used again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from runner.data import manifest
from runner.data.folder import MANIFEST, sha256_of
from runner.data.manifest import Manifest
from runner.errors import DataError


class OlderExport:
    """The export that is in the target: which of its files are as its manifest says."""

    def __init__(self, target: Path, found: Manifest | None) -> None:
        self.target = target
        self.manifest = found
        #: Whether its row groups are as they would be written now.
        self.equal = (
            found is not None
            and found["format"] == manifest.FORMAT
            and found["software"].get("pyarrow") == pa.__version__
        )
        self._sound: dict[str, Future[bool]] = {}

    @classmethod
    def of(cls, target: Path) -> OlderExport:
        """What is in the target.

        Raises:
            DataError: something else than an export.
        """
        if not target.exists():
            return cls(target, None)
        if not target.is_dir():
            raise DataError(f"{target} is no folder; name a new folder, an empty one, or an export")
        if (target / MANIFEST).exists():
            return cls(target, manifest.read(target, older=True))
        strange = sorted(entry.name for entry in target.iterdir() if not entry.name.startswith("."))
        if strange:
            raise DataError(
                f"{target} holds {strange[0]!r} and no export; name a new folder, an empty one, or an export"
            )
        return cls(target, None)

    def file(self, name: str) -> Path | None:
        """The path of one of its files; None if it is not there as the manifest says."""
        if self.manifest is None or (entry := manifest.paths(self.manifest).get(name)) is None:
            return None
        path = self.target / name
        checked = self._sound.get(name)
        return path if (self._is_sound(name, entry) if checked is None else checked.result()) else None

    def rows(self, name: str) -> int:
        """The rows of one of its files."""
        return 0 if self.manifest is None else int(manifest.paths(self.manifest)[name]["rows"])

    def begin(self, threads: ThreadPoolExecutor) -> None:
        """Have another thread compare its tables with their hashes, while the database is read."""
        for name, entry in sorted({} if self.manifest is None else manifest.paths(self.manifest).items()):
            if name.endswith(".parquet"):
                self._sound[name] = threads.submit(self._is_sound, name, entry)

    def _is_sound(self, name: str, entry: Mapping[str, Any]) -> bool:
        path = self.target / name
        return path.is_file() and not path.is_symlink() and sha256_of(path) == entry["sha256"]

    def parts(self) -> Iterator[tuple[str, Path]]:
        """Name and path of its parts of code."""
        for name in sorted({} if self.manifest is None else manifest.paths(self.manifest)):
            if re.fullmatch(r"code/part-\d{5}\.parquet", name) and (path := self.file(name)) is not None:
                yield name, path
