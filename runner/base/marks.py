"""What editors and file managers leave behind: marks in texts and files in folders, which no person means.

One byte order mark is dropped wherever a person's text is read or stored. Hidden files are no part of a folder that is
read by a pattern: lock files that are links to nowhere, and a Mac's notes on other files under their names.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

#: For `read_text`, `open` and `decode` of files that people write.
ENCODING: Final = "utf-8-sig"


def visible(folder: Path, ending: str = "") -> list[Path]:
    """What a folder holds under names with this ending, sorted, but for hidden files."""
    return sorted(folder.glob(f"[!.]*{ending}"))


def without_mark(data: bytes) -> bytes:
    """The bytes of a text that is kept as bytes."""
    return data.removeprefix(codecs.BOM_UTF8)
