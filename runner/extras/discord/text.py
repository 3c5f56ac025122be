"""Text as Discord takes it: escaped, in bounds, or as a file. Pure."""

from __future__ import annotations

import io
import re
from typing import Final

import discord

#: The most characters of a message.
MESSAGE_CHARS: Final = 2000
#: The most options of a drop-down, and choices of an autocompletion.
OPTIONS: Final = 25
#: The most files of a message.
FILES: Final = 10
#: The most bytes of a message's files: servers without boosts refuse more than 10 MiB.
FILE_BYTES: Final = 9 << 20
#: What Discord gives a meaning; a mention, a time and an emoji begin with the smaller sign.
_MARKDOWN: Final = re.compile(r"[\\*_~`|<>\[\]#]|:(?=//)|^[-+]", re.MULTILINE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: A backtick that another one follows.
_FENCE: Final = re.compile(r"`(?=`)")


def without_controls(text: str) -> str:
    """A text without characters that control a terminal or the direction of writing."""
    return _CONTROL.sub("\ufffd", text)


def plain(text: str) -> str:
    """A text of strangers without effect: no Markdown, no mention, no link, no control character."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", without_controls(text))
    return discord.utils.escape_mentions(escaped)


def code(text: str) -> str:
    """A text of strangers in a code block, which nothing in it ends."""
    shown = _FENCE.sub("`\u200b", without_controls(text))
    return f"```\n{shown}\n```"


def cut(text: str, chars: int = MESSAGE_CHARS) -> str:
    """A text of at most so many characters, with an ellipsis where it was longer."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def beginning(text: str, note: str) -> str:
    """The lines of a text that have room in a message, and a note after them."""
    # For the note and what may end a code block.
    room = MESSAGE_CHARS - len(note) - 10
    lines = text[:room].rpartition("\n")[0] or cut(text, room)
    fence = "\n```" if lines.count("```") % 2 else ""
    return f"{lines}{fence}\n{note}"


def file(name: str, content: str | bytes) -> discord.File:
    """A file to send."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return discord.File(io.BytesIO(data), filename=name)
