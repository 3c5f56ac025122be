"""How large pages may become: texts are cut by the bytes that they have as HTML, and lists by what is left of a page.

A user chooses names, code and what is printed, and `<` is four bytes of a page. With these bounds no page has more than
100 KB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from markupsafe import Markup, escape

from runner.base.safe import visible

#: Bytes of a name in a list.
NAME: Final = 60
_MORE: Final = "…"
#: What an escaped character may lose at a cut, at its end and at its beginning.
_CUT_END: Final = re.compile(r"&[#a-z0-9]{0,5}$")
_CUT_START: Final = re.compile(r"^[#a-z0-9]{0,5};")
#: What ends a line of a source for compilers; for Python's `splitlines` much else does.
LINE_END: Final = re.compile(r"\r\n?|\n")

T = TypeVar("T")


def cut(text: object, most: int = NAME) -> Markup:
    """The beginning of a text, as HTML of at most that many bytes."""
    whole = str(text)
    escaped = str(escape(visible(whole[:most]))).encode()
    if len(whole) <= most and len(escaped) <= most:
        return Markup(escaped.decode())  # noqa: S704 - escaped above
    kept = escaped[: most - len(_MORE.encode())].decode("utf-8", "ignore")
    return Markup(_CUT_END.sub("", kept) + _MORE)  # noqa: S704 - escaped above


def cut_start(text: object, most: int) -> Markup:
    """The end of a text, as HTML of at most that many bytes."""
    whole = str(text)
    escaped = str(escape(visible(whole[-most:]))).encode()
    if len(whole) <= most and len(escaped) <= most:
        return Markup(escaped.decode())  # noqa: S704 - escaped above
    kept = escaped[len(escaped) - most + len(_MORE.encode()) :].decode("utf-8", "ignore")
    return Markup(_MORE + _CUT_START.sub("", kept))  # noqa: S704 - escaped above


def source_lines(text: str) -> list[str]:
    """The lines of a source, without their ends."""
    lines = LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]


class Budget:
    """The bytes left for one kind of content of a page."""

    def __init__(self, most: int) -> None:
        self.left = most

    def text(self, text: object, most: int) -> Markup:
        """The beginning of a text, as far as the budget allows."""
        return self._take(cut(text, max(0, min(most, self.left))) if self.left > NAME else Markup())

    def end(self, text: object, most: int) -> Markup:
        """The end of a text, as far as the budget allows."""
        return self._take(cut_start(text, max(0, min(most, self.left))) if self.left > NAME else Markup())

    def lines(self, items: Iterable[T], size: Callable[[T], int]) -> Sequence[T]:
        """The first of these items, as far as the budget allows lines of their sizes."""
        kept = []
        for item in items:
            self.left -= size(item)
            if self.left < 0:
                break
            kept.append(item)
        return kept

    def _take(self, text: Markup) -> Markup:
        self.left -= len(text.encode())
        return text
