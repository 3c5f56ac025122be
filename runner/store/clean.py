"""Makes any text fit for PostgreSQL, at the one edge where results enter it. Pure; called by `runner.store.store`.

PostgreSQL's text has no NUL, its UTF-8 no lone surrogate, and JSON no NaN. A submission can print all three, and no
result may be lost to that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from psycopg.types.json import Jsonb

_UNFIT = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
#: Refuses what JSON has no word for: a NaN, a moment.
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
#: A NUL, as JSON writes it.
_NUL: Final = rb"\u0000"


def clean_text(text: str) -> str:
    """The text with every NUL and lone surrogate replaced by U+FFFD."""
    return _UNFIT.sub(_REPLACEMENT, text)


def fit(value: object) -> object:
    """A parameter as PostgreSQL takes it: its texts cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [fit(item) for item in value]
    return value


def clean_json(value: object) -> object:
    """The value as plain JSON types, its strings cleaned; a NaN or infinity becomes a string.

    Raises:
        TypeError: something that JSON has no word for.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} does not belong into a result; expected JSON types")


def to_jsonb(value: object) -> Jsonb | None:
    """A parameter for a jsonb column; None stays NULL.

    Raises:
        TypeError: something that JSON has no word for.
    """
    return None if value is None else Jsonb(_written(value), dumps=bytes)


def _written(value: object) -> bytes:
    """The value in JSON, cleaned if it must be: walking through every result would cost more than writing it."""
    with suppress(TypeError, ValueError):
        # A lone surrogate has no UTF-8.
        written = _JSON.encode(value).encode()
        if _NUL not in written:
            return written
    return _JSON.encode(clean_json(value)).encode()
