"""The byte order mark that some editors put first: one is dropped wherever a person's text is read or stored."""

from __future__ import annotations

import codecs
from typing import Final

#: For `read_text`, `open` and `decode` of files that people write.
ENCODING: Final = "utf-8-sig"


def without_mark(data: bytes) -> bytes:
    """The bytes of a text that is kept as bytes."""
    return data.removeprefix(codecs.BOM_UTF8)
