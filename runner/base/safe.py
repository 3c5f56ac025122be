"""Text of strangers, made harmless for a terminal or a page. Pure; called by the renderers.

Submissions choose their stdout, their error messages and their file names. Printed raw, these could move the cursor,
rewrite earlier lines, set the window title or answer back (terminal escape injection). On a page their code could be
written in another direction than it runs.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

#: What may have to be escaped.
_RARE: Final = re.compile(r"[^\n\t -~]")
#: A selector of variants: symbols need them, after ASCII or another one they only hide.
_SELECTOR: Final = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
#: Those that some scripts and symbols need.
_JOINERS: Final = "\u200c\u200d"
#: Control characters, surrogates, format characters (among them the bidirectional overrides), and ends of lines.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Letters and marks that are not seen; names in a source may have them.
_UNSEEN: Final = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"


def printable(text: str) -> str:
    r"""The text with escapes, e.g. `\x1b`, for what controls, formats or is not seen, but newline and tab."""
    # A carriage return before a newline is a line end, not an attempt to overwrite the line.
    return _RARE.sub(_escaped, text.replace("\r\n", "\n"))


def visible(text: str) -> str:
    """`printable`, with the two joiners as they are: in HTML they harm nothing."""
    return _RARE.sub(lambda match: match[0] if match[0] in _JOINERS else _escaped(match), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`printable`, and newlines as well become visible, for a table cell."""
    return printable(text).replace("\n", "⏎ ").replace("\t", " ")


def tail(text: str, *, lines: int) -> tuple[str, int]:
    """The last lines of a text, printable, and how many lines were left out before them."""
    every = printable(text).rstrip("\n").split("\n")
    kept = every[-lines:]
    return "\n".join(kept), len(every) - len(kept)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if _SELECTOR.match(character):
        before = match.string[match.start() - 1 : match.start()]
        shown = not (before.isascii() or _SELECTOR.match(before))
    else:
        shown = character not in _UNSEEN and unicodedata.category(character) not in _UNSAFE
    if shown:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
