"""Texts of a submission's exceptions as they are shown. Must import nothing but the standard library."""

from __future__ import annotations

import traceback

_MAX_TEXT = 8_000


def summary(error: BaseException) -> str:
    """The last lines of an exception's traceback; of a syntax error they say where it is."""
    return "".join(traceback.format_exception_only(error)).strip()


def cut(text: str) -> str:
    """A text that can be sent, cut in the middle where it is too long."""
    # Surrogates cannot be encoded: json would pass them on, and the judge could not decode the message.
    clean = text.encode("utf-8", errors="replace").decode()
    return clean if len(clean) <= _MAX_TEXT else clean[: _MAX_TEXT // 2] + "\n[...]\n" + clean[-_MAX_TEXT // 2 :]
