"""Compiles texts of Python. Must import nothing but the standard library."""

from __future__ import annotations

import os
from types import CodeType


def compile_text(text: bytes | str, path: str | os.PathLike[str]) -> CodeType:
    """The code of a file as Python reads it: with a mark of the byte order, or a line that names the encoding.

    Raises:
        SyntaxError: it is no Python, or more deeply nested than Python compiles.
    """
    try:
        data = text.encode("utf-8") if isinstance(text, str) else text
        return compile(data, path, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SyntaxError(f"the text cannot be compiled: {str(error) or 'it is nested too deeply'}") from error
