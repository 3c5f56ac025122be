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
#: Files above this are not sent: servers without boosts refuse more than 10 MiB.
FILE_BYTES: Final = 9 << 20
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """A text of strangers without effect: no Markdown, no mention, no control character."""
    shown = discord.utils.escape_markdown(_CONTROL.sub("\ufffd", text))
    # Links to messages, channels and roles, too: <#1>, <@&1>, <t:0>.
    return discord.utils.escape_mentions(shown).replace("<", "\\<").replace("[", "\\[")


def code(text: str) -> str:
    """A text of strangers in a code block, which nothing in it ends."""
    shown = _CONTROL.sub("\ufffd", text).replace("```", "`\u200b``")
    return f"```\n{shown}\n```"


def cut(text: str, chars: int = MESSAGE_CHARS) -> str:
    """A text of at most so many characters, with an ellipsis where it was longer."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def file(name: str, content: str | bytes) -> discord.File:
    """A file to send."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return discord.File(io.BytesIO(data[:FILE_BYTES]), filename=name)
