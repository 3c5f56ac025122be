"""The manifest of an export: what it holds, of when, by which rules, and the hash of every file. Knows no parquet."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from runner.base.errors import DataError
from runner.extras.data.folder import MANIFEST

#: Changes when the same rows are written as other bytes, or mean something else.
FORMAT: Final = 1

Manifest = dict[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read(folder: Path) -> Manifest:
    """The manifest of an export.

    Raises:
        DataError: there is none, or it is not one of this format.
    """
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{folder} is no export: it has no {MANIFEST}; make one with `kernel-runner data export`"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not _is_sound(document):
        raise DataError(f"{path} is no manifest of format {FORMAT}, which this release writes and reads")
    return dict(document)


def _is_sound(document: object) -> bool:
    return (
        isinstance(document, dict)
        and document.get("format") == FORMAT
        and isinstance(document.get("software"), dict)
        and isinstance(document.get("boards"), list)
        and all(isinstance(board, dict) for board in document["boards"])
        and isinstance(document.get("files"), list)
        and len(document["files"]) > 0
        and all(
            isinstance(entry, dict) and isinstance(entry.get("path"), str) and isinstance(entry.get("sha256"), str)
            for entry in document["files"]
        )
    )


def paths(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """The files of an export by path."""
    return {entry["path"]: entry for entry in manifest["files"]}


def moment(at_us: int) -> str:
    """A time in microseconds since 1970, as text."""
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")
