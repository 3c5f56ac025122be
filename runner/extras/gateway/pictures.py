"""The picture of a ranking for links in chats: PNG, by Pillow. Pure; equal rankings are drawn once."""

from __future__ import annotations

import functools
import hashlib
import io
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageDraw, ImageFont

#: What chats and social networks show.
WIDTH: Final = 1200
HEIGHT: Final = 630
#: Entries of a ranking that are drawn, and pictures that are kept.
PLACES: Final = 5
_KEPT: Final = 128
#: Characters of a text that are looked at.
_LETTERS: Final = 80
#: What stands for a letter that no other is made of: the prefix of microseconds.
_PLAIN: Final[Mapping[str, str]] = {"µ": "u"}
_MARGIN: Final = 64
_BACK: Final = "#ffffff"
_TEXT: Final = "#1b1b1b"
_QUIET: Final = "#5c5c5c"
_LINE: Final = "#d9d9d9"
_ACCENT: Final = "#1f5fbf"
_TITLE_PX: Final = 60
_ROW_PX: Final = 36
_SMALL_PX: Final = 28
_FIRST_ROW: Final = 224
_ROW: Final = 66


@dataclass(frozen=True, kw_only=True)
class Place:
    """An entry of a ranking: its rank, user and time as texts."""

    rank: str
    user: str
    time: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that a picture shows."""

    title: str
    subtitle: str
    places: tuple[Place, ...]

    @property
    def version(self) -> str:
        """Changes with what the picture shows."""
        return hashlib.sha256(repr(self).encode("utf-8", "replace")).hexdigest()[:16]


@functools.lru_cache(_KEPT)
def draw(card: Card) -> bytes:
    """The picture as PNG."""
    image = Image.new("RGB", (WIDTH, HEIGHT), _BACK)
    pen = ImageDraw.Draw(image)
    right = WIDTH - _MARGIN
    pen.rectangle((0, 0, WIDTH, 14), fill=_ACCENT)
    pen.text((_MARGIN, 60), _fit(card.title, _TITLE_PX, right - _MARGIN), font=_font(_TITLE_PX), fill=_TEXT)
    pen.text((_MARGIN, 148), _fit(card.subtitle, _SMALL_PX, right - _MARGIN), font=_font(_SMALL_PX), fill=_QUIET)
    for index, place in enumerate(card.places[:PLACES]):
        top = _FIRST_ROW + index * _ROW
        pen.line((_MARGIN, top - 12, right, top - 12), fill=_LINE, width=2)
        time = _fit(place.time, _ROW_PX, 300)
        pen.text((_MARGIN, top), _fit(place.rank, _ROW_PX, 80), font=_font(_ROW_PX), fill=_ACCENT)
        pen.text((_MARGIN + 96, top), _fit(place.user, _ROW_PX, 600), font=_font(_ROW_PX), fill=_TEXT)
        pen.text((right, top), time, font=_font(_ROW_PX), fill=_TEXT, anchor="ra")
    if not card.places:
        pen.text((_MARGIN, _FIRST_ROW), "No score ranks here yet", font=_font(_ROW_PX), fill=_QUIET)
    pen.text((_MARGIN, HEIGHT - 56), "kernel-runner", font=_font(_SMALL_PX), fill=_QUIET)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=6)
    return out.getvalue()


@functools.cache
def _font(pixels: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """DejaVu Sans where the host has it, else Pillow's own, which has ASCII letters alone."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", pixels)
    except OSError:
        return ImageFont.load_default(pixels)


def _fit(text: str, pixels: int, width: int) -> str:
    """The beginning of a text that fits, in letters that the font has."""
    letters = "".join(map(_drawable, text[:_LETTERS]))
    if len(text) <= _LETTERS and _font(pixels).getlength(letters) <= width:
        return letters
    while letters and _font(pixels).getlength(f"{letters}…") > width:
        letters = letters[:-1]
    return f"{letters.rstrip()}…"


@functools.lru_cache(4096)
def _drawable(letter: str) -> str:
    """A letter; else the plain one that it is made of; else a question mark."""
    parts = _PLAIN.get(letter, unicodedata.normalize("NFKD", letter))
    return next((each for each in (letter, *parts) if _has(each)), "?")


def _has(letter: str) -> bool:
    """Whether the font has a letter."""
    font = _font(_ROW_PX)
    return letter == " " or (letter.isprintable() and bytes(font.getmask(letter)) != bytes(font.getmask("\ufffe")))
